package wal

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestAttemptsOnAFullDisk opens logs on a disk without space, and on one with an
// exhausted quota: attempts leave no files, and records that were acknowledged before
// stay.
func TestAttemptsOnAFullDisk(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		for failing := range int64(5) { // the header's write, the space for a record, its write, ...
			mem := vfs.NewMem()
			var armed atomic.Bool
			var count atomic.Int64
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				switch op.Kind {
				case errorfs.OpFileWrite, errorfs.OpFilePreallocate:
					if armed.Load() && count.Add(1) > failing {
						return full
					}
				}
				return nil
			}))
			l := open(t, fs, small)
			if err := l.Wait(context.Background(), l.Append(1, []byte("kept"))); err != nil {
				t.Fatal(err)
			}
			if err := l.Discard(); err != nil { // must keep what was acknowledged
				t.Fatal(err)
			}
			armed.Store(true)
			acknowledged := 0
			for range 10 {
				count.Store(0)
				l, err := Open(fs, testDir, small, Options{})
				if err == nil {
					if err = l.Wait(context.Background(), l.Append(1, []byte("x"))); err == nil {
						acknowledged++
					}
					l.Discard()
				}
				if err != nil && !NoSpace(err) {
					t.Fatalf("%v is not taken for a full disk", err)
				}
			}
			segments, err := Segments(mem, testDir)
			if err != nil || len(segments) != 1+acknowledged {
				t.Errorf("%v from write %d on: segments %v, %v; %d were acknowledged", full, failing, segments, err, acknowledged)
			}
			records := 0
			if _, err := Replay(mem, testDir, ReplayOptions{}, func(Segment, byte, []byte) error { records++; return nil }); err != nil || records != 1+acknowledged {
				t.Errorf("%v from write %d on: %d records, %v; want %d", full, failing, records, err, 1+acknowledged)
			}
		}
	}
}
