package wal

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
)

// TestReleaseAfterFailure releases segments after the log has failed: the caller has
// stored their content elsewhere, so the log's failure does not matter.
func TestReleaseAfterFailure(t *testing.T) {
	mem := crashfs.New()
	var broken atomic.Bool
	fsys := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileWrite {
			return syscall.EIO
		}
		return nil
	}))
	l, err := Open(fsys, "log", DefaultConfig(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := l.Wait(ctx, l.Append(1, []byte("before"))); err != nil {
		t.Fatal(err)
	}
	next, err := l.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(ctx, l.Append(1, []byte("after"))); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if err := l.Wait(ctx, l.Append(1, []byte("lost"))); !errors.Is(err, syscall.EIO) {
		t.Fatalf("append to a broken log: %v", err)
	}
	<-l.Failed()
	l.Close() // the writer has ended
	if err := l.Release(next); err != nil {
		t.Error(err)
	}
	segments, err := Segments(mem, "log")
	if err != nil || len(segments) != 1 || segments[0] != next {
		t.Errorf("segments %d (%v), want only %d", segments, err, next)
	}
}
