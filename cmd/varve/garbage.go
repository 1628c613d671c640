package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Garbage that may pile up before it is collected, in percent of the live memory.
// Points make next to no garbage and series are kept: Go's 100 percent take up to
// twice the live memory and save no CPU that could be measured. While 200,000 new
// series arrive, the peak is 298 MB with 50 percent and 248 MB with 25, at the same
// CPU. In a small store, 25 percent are a few MiB, which queries fill all the time;
// there garbageMin may pile up.
const (
	garbagePercent     = 25
	garbagePercentMost = 400
	garbageMin         = 32 << 20
)

// limitGarbage sets the percentage now and after each collection. GOGC in the
// environment wins.
func limitGarbage() {
	if _, own := os.LookupEnv("GOGC"); !own {
		afterCollection(0)
	}
}

// afterCollection sets the percentage if it is another one, and again when the
// next collection has found that nobody holds the sentinel.
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

// percentFor is the percentage for so many bytes alive, in steps of ten.
func percentFor(live uint64) int {
	if live == 0 {
		return garbagePercent
	}
	return max(garbagePercent, int(min(garbagePercentMost, garbageMin*100/live/10*10)))
}
