//go:build linux && !race

package fastpath

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"varve/internal/stream"
)

// A socket reads from a connection and writes to it by system calls that bypass Go's scheduler.
// The scheduler needs to know only of calls that may block, and these do not, because the
// descriptor is non-blocking. After a pause, the first call that the scheduler sees wakes Go's
// monitor thread, which takes a third of the CPU of a short query, and as much of its time.
// Deadlines and Close are those of the connection.
type socket struct {
	raw   syscall.RawConn
	read  call
	write call
}

// A call is a system call with its result.
type call struct {
	number uintptr
	name   string
	p      []byte
	n      int
	err    error
	try    func(fd uintptr) (done bool) // the method, allocated once
}

// oneCall bounds one system call: the garbage collector waits for its end.
const oneCall = 64 << 10

// newSocket returns c, or a socket for it.
func newSocket(c *stream.Conn) io.ReadWriter {
	if c.TLS() != nil {
		return c
	}
	below, ok := c.Conn.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := below.SyscallConn()
	if err != nil {
		return c
	}
	s := &socket{raw: raw, read: call{number: syscall.SYS_READ, name: "read"}, write: call{number: syscall.SYS_WRITE, name: "write"}}
	s.read.try, s.write.try = s.read.once, s.write.once
	return s
}

func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.read.do(s.raw.Read, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (s *socket) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = s.write.do(s.raw.Write, p[n:])
		n += k
	}
	return n, err
}

// do calls once the connection is ready, within its deadline.
func (c *call) do(whenReady func(func(uintptr) bool) error, p []byte) (int, error) {
	c.p, c.n, c.err = p[:min(len(p), oneCall)], 0, nil
	err := whenReady(c.try)
	c.p = nil
	if err == nil && c.err != nil {
		err = &net.OpError{Op: c.name, Net: "tcp", Err: os.NewSyscallError(c.name, c.err)}
	}
	return c.n, err
}

// once calls, and reports whether there is a result. There is none if the connection is not ready.
func (c *call) once(fd uintptr) (done bool) {
	for {
		n, _, errno := syscall.RawSyscall(c.number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.p))), uintptr(len(c.p)))
		switch errno {
		case 0:
			c.n = int(n)
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		default:
			c.err = errno
		}
		return true
	}
}
