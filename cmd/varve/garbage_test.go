package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestPercentOfGarbage(t *testing.T) {
	for live, want := range map[uint64]int{0: 20, 1: 400, 8 << 20: 400, 16 << 20: 200, 20 << 20: 160, 64 << 20: 50, 128 << 20: 20, 150 << 20: 20, 1 << 40: 20} {
		if got := percentFor(live); got != want {
			t.Errorf("%d bytes alive: %d percent, want %d", live, got, want)
		}
	}
}

// The percentage follows what is alive.
func TestLimitGarbage(t *testing.T) {
	if _, own := os.LookupEnv("GOGC"); own {
		t.Skip("GOGC is set")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	limitGarbage()
	held := make([]byte, 200<<20)
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	for deadline := time.Now().Add(patience); percent() != garbagePercent; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatalf("%d percent with 200 MiB alive", percent())
		}
	}
	runtime.KeepAlive(held)
	held = nil
	for deadline := time.Now().Add(patience); percent() == garbagePercent; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatalf("still %d percent with little alive", percent())
		}
	}
}
