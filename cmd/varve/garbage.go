package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"varve/internal/machine"
)

// How much garbage may accumulate before it is collected, in percent of the live memory.
// Points make almost no garbage, and series are kept: with Go's default of 100 percent,
// the process would take up to twice the live memory, and save no measurable CPU time.
// While 200,000 new series arrived, the peak was 298 MB with 50 percent and 248 MB with
// 25; in a later version 213 MB with 25 and 207 MB with 20, at the same CPU. In a small
// store, 20 percent are only a few MiB, which queries would fill constantly, so up to
// garbageMin may accumulate.
const (
	garbagePercent     = 20
	garbagePercentMost = 400
	garbageMin         = 32 << 20
)

// limitGarbage sets the percentage now and after each collection, and the memory limit above which
// garbage is collected more often. GOGC and GOMEMLIMIT in the environment take precedence.
func limitGarbage() {
	machine.LimitGarbage()
	if _, own := os.LookupEnv("GOGC"); !own {
		afterCollection(0)
	}
}

// afterCollection sets the percentage if it has changed. It is called again
// after the next collection, which finds the sentinel unreferenced.
func afterCollection(current int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := percentFor(live[0].Value.Uint64())
	if percent != current {
		debug.SetGCPercent(percent)
	}
	sentinel := new(*byte) // an object with a pointer shares its memory with nothing
	runtime.AddCleanup(sentinel, afterCollection, percent)
}

// percentFor is the percentage for a number of live bytes, in steps of ten.
func percentFor(live uint64) int {
	if live == 0 {
		return garbagePercent
	}
	return max(garbagePercent, int(min(garbagePercentMost, garbageMin*100/live/10*10)))
}
