//go:build unix

package machine

import "syscall"

// Files returns how many files and connections this process may have open, if that is
// known: the hard limit, since Go raises the other one to it.
func Files() (limit uint64, known bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Max), err == nil
}
