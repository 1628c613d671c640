//go:build linux && !race

package fastpath

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"varve/internal/stream"
)

// A socket reads from a connection and writes to it by system calls that bypass Go's scheduler.
// The scheduler needs to know only of calls that may block, and these do not, because the
// descriptor is non-blocking. After a pause, the first call that the scheduler sees wakes Go's
// monitor thread, which takes a third of the CPU of a short query, and as much of its time.
// Deadlines and Close are those of the connection.
type socket struct {
	raw    syscall.RawConn
	read   call
	write  call
	pieces []unix.Iovec // what write writes
}

// A call is a system call with its result.
type call struct {
	number uintptr
	name   string
	at     unsafe.Pointer
	length int
	n      int
	err    error
	waited bool                         // the connection was not ready at first
	try    func(fd uintptr) (done bool) // the method, allocated once
}

// oneCall bounds one system call: the garbage collector waits for its end.
const oneCall = 64 << 10

// newWire returns a socket for c, if c can have one.
func newWire(c *stream.Conn) wire {
	below, ok := c.Conn.(syscall.Conn)
	if c.TLS() != nil || !ok {
		return connWire{c}
	}
	raw, err := below.SyscallConn()
	if err != nil {
		return connWire{c}
	}
	s := &socket{
		raw:   raw,
		read:  call{number: syscall.SYS_READ, name: "read"},
		write: call{number: syscall.SYS_WRITEV, name: "write"},
	}
	s.read.try, s.write.try = s.read.once, s.write.once
	return s
}

func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.read.do(s.raw.Read, unsafe.Pointer(unsafe.SliceData(p)), min(len(p), oneCall))
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (s *socket) waited() bool { return s.read.waited }

func (s *socket) Write(p []byte) (n int, err error) {
	rest := [...][]byte{p}
	err = s.writePieces(rest[:]...)
	return len(p) - len(rest[0]), err
}

func (s *socket) writePieces(rest ...[]byte) error {
	defer func() { clear(s.pieces[:cap(s.pieces)]) }()
	for {
		s.pieces = appendPieces(s.pieces[:0], rest, oneCall)
		if len(s.pieces) == 0 {
			return nil
		}
		n, err := s.write.do(s.raw.Write, unsafe.Pointer(unsafe.SliceData(s.pieces)), len(s.pieces))
		for i, p := range rest {
			k := min(n, len(p))
			rest[i], n = p[k:], n-k
		}
		if err != nil {
			return err
		}
	}
}

// appendPieces appends what is in list, without empty pieces, up to room bytes.
func appendPieces(dst []unix.Iovec, list [][]byte, room int) []unix.Iovec {
	for _, p := range list {
		if n := min(len(p), room); n > 0 {
			v := unix.Iovec{Base: unsafe.SliceData(p)}
			v.SetLen(n)
			dst, room = append(dst, v), room-n
		}
	}
	return dst
}

// do calls once the connection is ready, within its deadline.
func (c *call) do(whenReady func(func(uintptr) bool) error, at unsafe.Pointer, length int) (int, error) {
	c.at, c.length, c.n, c.err, c.waited = at, length, 0, nil, false
	err := whenReady(c.try)
	c.at = nil
	if err == nil && c.err != nil {
		err = &net.OpError{Op: c.name, Net: "tcp", Err: os.NewSyscallError(c.name, c.err)}
	}
	return c.n, err
}

// once calls, and reports whether there is a result. There is none if the connection is not ready.
func (c *call) once(fd uintptr) (done bool) {
	for {
		n, _, errno := syscall.RawSyscall(c.number, fd, uintptr(c.at), uintptr(c.length))
		switch errno {
		case 0:
			c.n = int(n)
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			c.waited = true
			return false
		default:
			c.err = errno
		}
		return true
	}
}
