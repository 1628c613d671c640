//go:build race

package rollup

import "runtime"

// The race detector of Go 1.26 has one context for all processors that run timers of a bubble of
// testing/synctest, and crashes if two do so at once: "CHECK failed", or SIGSEGV in
// raceacquirectx. Many tests here run several servers, with their timers, in one bubble. So under
// the detector this package has one processor; it finds races by what happens before what, not by
// what happens at once.
func init() {
	runtime.GOMAXPROCS(1)
}
