//go:build unix

package stream

import "syscall"

// more reports whether a read returns at once: bytes have arrived and may be
// read now, or the connection has ended.
func (c *Conn) more() bool {
	if c.meter.Load().waiting() {
		return false
	}
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	more := true
	raw.Control(func(fd uintptr) {
		var next [1]byte
		_, _, err := syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		more = err != syscall.EAGAIN
	})
	return more
}
