//go:build unix

package doctor

import "syscall"

// limitOfFiles is the hard limit: Go raises the other one to it.
func limitOfFiles() (uint64, bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Max), err == nil
}
