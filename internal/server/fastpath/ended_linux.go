package fastpath

import (
	"golang.org/x/sys/unix"

	"varve/internal/stream"
)

// hasEnded reports whether the client has closed its sending direction, even if bytes that it sent
// before remain to be read. Other goroutines may read at the same time.
func hasEnded(c *stream.Conn) bool {
	return ofSocket(c, func(fd int) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0)
		return err == nil && n > 0
	})
}
