package wal

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestRemovalsLeaveNoGap fails a removal of many segments after some of them. Release leaves the
// end of the log, and Clear leaves its beginning, so what is left replays without damage.
func TestRemovalsLeaveNoGap(t *testing.T) {
	const segments = 12
	for removed := range int64(segments) {
		mem := vfs.NewMem()
		var left atomic.Int64
		left.Store(segments)
		fsys := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRemove && left.Add(-1) < 0 {
				return errorfs.ErrInjected
			}
			return nil
		}))
		cfg := small
		cfg.RecycleSegments = 0
		l := open(t, fsys, cfg)
		for range segments {
			wait(t, l, l.Append(1, []byte("x")))
			if _, err := l.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
		last, err := l.Rotate()
		if err != nil {
			t.Fatal(err)
		}

		left.Store(removed / 2)
		if err := l.Release(last); !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("Release: %v", err)
		}
		first := 1 + Segment(removed/2)
		checkSegments(t, mem, first, last)
		closeLog(t, l)

		left.Store(removed - removed/2)
		if _, err := l.Clear(); !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("Clear: %v", err)
		}
		checkSegments(t, mem, first, last-Segment(removed-removed/2))
	}
}

// checkSegments fails unless the log has exactly the segments from first to last, and replays.
func checkSegments(t *testing.T, fsys vfs.FS, first, last Segment) {
	t.Helper()
	var want []Segment
	for s := first; s <= last; s++ {
		want = append(want, s)
	}
	if got, err := Segments(fsys, testDir); err != nil || !slices.Equal(got, want) {
		t.Fatalf("segments %v are left (%v), want %v", got, err, want)
	}
	if _, stats, err := replayWith(fsys, ReplayOptions{From: first}); err != nil || stats.Damages != 0 {
		t.Fatalf("replay from %d: %+v, %v", first, stats, err)
	}
}
