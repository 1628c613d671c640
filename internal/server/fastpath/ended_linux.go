package fastpath

import (
	"syscall"

	"golang.org/x/sys/unix"

	"varve/internal/stream"
)

// hasEnded reports whether the client sends no more, even if bytes that it sent before remain to be
// read. Others may be reading at the same time.
func hasEnded(c *stream.Conn) (ended bool) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(state, 0)
		ended = err == nil && n > 0
	})
	return ended || err != nil
}
