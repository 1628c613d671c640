//go:build !unix

package machine

// Files returns how many files and connections this process may have open, if that is
// known.
func Files() (limit uint64, known bool) { return 0, false }
