//go:build unix

package fastpath

import (
	"encoding/binary"
	"syscall"

	"varve/internal/stream"
)

// hasLeft reports whether the client has closed the connection. What it sent before remains to be
// read. No other goroutine may read at the same time.
func hasLeft(c *stream.Conn) bool {
	return ofSocket(c, func(fd int) bool {
		var next [alertMost + 1]byte
		n, _, err := syscall.Recvfrom(fd, next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return err == syscall.ECONNRESET || err == nil && (n == 0 || c.TLS() != nil && isAlert(next[:n]))
	})
}

// ofSocket returns what f reports of the connection's socket, and true for one that is closed. It
// does not wait for a read that is in progress.
func ofSocket(c *stream.Conn, f func(fd int) bool) (is bool) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { is = f(int(fd)) })
	return is || err != nil
}

// alertMost is the longest TLS alert, including what encryption adds.
const alertMost = 127

// isAlert reports whether p is one TLS record with an alert, by which a client says that it leaves.
// TLS 1.3 hides the content of a record, but not that it is two bytes. A request is longer.
func isAlert(p []byte) bool {
	const head, alert, hidden = 5, 21, 23
	if len(p) <= head || len(p) != head+int(binary.BigEndian.Uint16(p[3:])) {
		return false
	}
	return p[0] == alert || p[0] == hidden && len(p) == head+2+1+16
}
