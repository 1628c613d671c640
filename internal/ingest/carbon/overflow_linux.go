package carbon

import (
	"encoding/binary"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// overflowBytes is the size of a message in which Linux says how many datagrams it has
// dropped at a socket.
var overflowBytes = unix.CmsgSpace(4)

// countOverflow asks Linux to say with each datagram how many it has dropped before.
func countOverflow(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	})
	if err != nil {
		return err
	}
	return failed
}

// overflowIn returns how many datagrams were dropped since the socket was opened, modulo
// 2^32. ok is false if the message does not say: none was dropped, or it cannot tell.
func overflowIn(oob []byte) (dropped uint32, ok bool) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_RXQ_OVFL && len(m.Data) >= 4 {
			return binary.NativeEndian.Uint32(m.Data), true
		}
	}
	return 0, false
}
