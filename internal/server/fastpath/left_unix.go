//go:build unix

package fastpath

import (
	"net"
	"syscall"
)

// hasLeft reports whether the client of a connection has ended it. What it has sent stays
// to be read.
func hasLeft(c net.Conn) (left bool) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { // not Read: that would wait for a Read that is going on
		var next [1]byte
		n, _, err := syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		left = n == 0 && err == nil || err == syscall.ECONNRESET
	})
	return left || err != nil
}
