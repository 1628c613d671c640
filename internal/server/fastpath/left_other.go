//go:build !unix

package fastpath

import "net"

// hasLeft is not known here: a request whose client has left is worked on to its end.
func hasLeft(net.Conn) bool { return false }
