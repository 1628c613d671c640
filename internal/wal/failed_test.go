package wal

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store"
)

// TestOpenFailed: a log that failed before it began refuses records with the reason and
// can be closed at once. It leaves the records of the previous log until it is cleared,
// and then returns a number that no segment has had.
func TestOpenFailed(t *testing.T) {
	mem := vfs.NewMem()
	l := open(t, mem, small)
	for i := range uint64(20) {
		wait(t, l, l.Append(1, numbered(i, 200)))
	}
	closeLog(t, l)
	before := slices.Sorted(slices.Values(listFiles(t, mem)))
	all, err := Segments(mem, testDir)
	if err != nil || len(all) < 2 {
		t.Fatalf("segments %v, %v", all, err)
	}

	bad := small
	bad.SyncInterval = -1
	failure := &store.UnavailableError{Reason: "no space for a segment"}
	if l, err := OpenFailed(mem, testDir, bad, Options{}, failure); err == nil || l != nil {
		t.Errorf("with settings that cannot be: %v", err)
	}
	taken := prometheus.NewRegistry()
	beside, err := Open(vfs.NewMem(), testDir, small, Options{Registerer: taken})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := OpenFailed(mem, testDir, small, Options{Registerer: taken}, failure); err == nil || l != nil {
		t.Errorf("beside the metrics of another log: %v", err)
	}
	closeLog(t, beside)
	l, err = OpenFailed(mem, testDir, small, Options{}, failure)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Failed():
	default:
		t.Error("the log does not say that it has failed")
	}
	_, rotated := l.Rotate()
	for what, err := range map[string]error{
		"Err": l.Err(), "Wait": l.Wait(t.Context(), l.Append(1, []byte("x"))), "Reserve": l.Reserve(t.Context(), 1), "Rotate": rotated,
	} {
		if !strings.Contains(err.Error(), failure.Reason) {
			t.Errorf("%s: %v", what, err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if !errors.As(err, &failure) {
			t.Errorf("Close: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a log without a writer waits for it")
	}
	if after := slices.Sorted(slices.Values(listFiles(t, mem))); !slices.Equal(after, before) {
		t.Errorf("files %q have become %q", before, after)
	}
	from, err := l.Clear()
	if err != nil || from != all[len(all)-1]+1 {
		t.Errorf("the next segment is %d, %v, after %v", from, err, all)
	}
	if left, err := Segments(mem, testDir); err != nil || len(left) != 0 {
		t.Errorf("segments %v are left, %v", left, err)
	}
	l, err = Open(mem, testDir, small, Options{From: from})
	if err != nil {
		t.Fatal(err) // it is locked, for example
	}
	closeLog(t, l)
	if left, err := Segments(mem, testDir); err != nil || !slices.Equal(left, []Segment{from}) {
		t.Errorf("segments %v, %v, want %d", left, err, from)
	}
}

// TestOpenFailedWithoutADirectory: if any call fails while segments are listed, that is
// an error: a log mistaken for empty would be cleared without removing its segments.
func TestOpenFailedWithoutADirectory(t *testing.T) {
	mem := vfs.NewMem()
	l := open(t, mem, small)
	wait(t, l, l.Append(1, []byte("x")))
	closeLog(t, l)
	failure := &store.UnavailableError{Reason: "no space for a segment"}
	for n := int32(1); ; n++ {
		var calls atomic.Int32
		var failed errorfs.Op
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileClose || calls.Add(1) != n {
				return nil
			}
			failed = op
			return errorfs.ErrInjected
		}))
		l, err := OpenFailed(fs, testDir, small, Options{}, failure)
		if calls.Load() < n {
			if err != nil || n < 3 {
				t.Errorf("after %d calls: %v", n-1, err)
			}
			_ = l.Close()
			return
		}
		if !errors.Is(err, errorfs.ErrInjected) || l != nil {
			t.Errorf("call %d, of kind %d for %s, fails: %v", n, failed.Kind, failed.Path, err)
		}
		if l != nil {
			_ = l.Close()
		}
	}
}
