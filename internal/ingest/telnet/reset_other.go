//go:build !unix

package telnet

// isReset reports whether the client closed with a reset. Where errors do not
// tell, every end is a normal one.
func isReset(error) bool { return true }
