//go:build unix

package fastpath

import (
	"encoding/binary"
	"syscall"

	"varve/internal/stream"
)

// hasLeft reports whether the client of a connection has ended it. What it has sent stays
// to be read. It is called while nobody reads.
func hasLeft(c *stream.Conn) (left bool) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { // not Read: that would wait for a Read that is going on
		var next [alertMost + 1]byte
		n, _, err := syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		left = err == syscall.ECONNRESET || err == nil && (n == 0 || c.TLS() != nil && isAlert(next[:n]))
	})
	return left || err != nil
}

// alertMost bounds an alert of TLS, with what encryption adds.
const alertMost = 127

// isAlert reports whether p is one record of TLS that holds an alert: that is how a client says
// that it leaves. TLS 1.3 hides what a record holds, but not that it is two bytes. A
// request is longer.
func isAlert(p []byte) bool {
	const head, alert, hidden = 5, 21, 23
	if len(p) <= head || len(p) != head+int(binary.BigEndian.Uint16(p[3:])) {
		return false
	}
	return p[0] == alert || p[0] == hidden && len(p) == head+2+1+16
}
