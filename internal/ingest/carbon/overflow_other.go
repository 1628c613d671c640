//go:build !linux

package carbon

import (
	"errors"
	"net"
)

// overflowBytes is 0: nothing is said with a datagram.
var overflowBytes = 0

func countOverflow(*net.UDPConn) error { return errors.ErrUnsupported }

func overflowIn([]byte) (dropped uint32, ok bool) { return 0, false }
