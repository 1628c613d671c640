//go:build unix

package lines

import (
	"errors"
	"syscall"
)

// isReset reports whether the client closed with a reset, which is a normal end
// for clients that never read.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ETIMEDOUT)
}
