package wal

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store"
)

// syncingFile counts syncs, and fails them once err is set.
type syncingFile struct {
	vfs.File
	syncs int
	err   error
}

func (f *syncingFile) SyncData() error {
	f.syncs++
	return f.err
}

// TestIntervalSyncsUnderLoad: a log that never waits for records syncs when its interval is
// over too, and only then.
func TestIntervalSyncsUnderLoad(t *testing.T) {
	f := &syncingFile{}
	w := &writer{interval: true, syncInterval: time.Hour, timer: time.NewTimer(time.Hour), file: f, metrics: newMetrics(&Log{})}
	defer w.timer.Stop()
	if err := w.syncIfDue(); err != nil || w.timing {
		t.Errorf("with nothing to sync: timing %v, %v", w.timing, err)
	}
	for range 1000 {
		w.offset++
		if err := w.syncIfDue(); err != nil || f.syncs != 0 || !w.timing {
			t.Fatalf("within the interval: %d syncs, timing %v, %v", f.syncs, w.timing, err)
		}
	}
	w.timing, w.syncInterval = false, time.Millisecond
	for begun := time.Now(); f.syncs == 0; w.offset++ {
		if err := w.syncIfDue(); err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("records that come without a pause are never synced")
		}
	}
	if w.durable != w.offset-1 || w.timing {
		t.Errorf("after the sync %d of %d are durable, timing %v", w.durable, w.offset-1, w.timing)
	}
	f.err = errors.New("disk is gone")
	for begun := time.Now(); ; {
		if err := w.syncIfDue(); err != nil {
			if !errors.Is(err, f.err) {
				t.Error(err)
			}
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("a sync that failed is not told")
		}
	}
}

// TestOpenBesideItself: a log whose metrics cannot be registered is not opened, and leaves
// nothing open.
func TestOpenBesideItself(t *testing.T) {
	mem, reg := vfs.NewMem(), prometheus.NewRegistry()
	o := Options{Registerer: reg}
	l, err := Open(mem, testDir, small, o)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Open(mem, "data/other", small, o); err == nil || second != nil {
		t.Errorf("with metrics that are there already: %v, %v", second, err)
	}
	closeLog(t, l)
	l, err = Open(mem, "data/other", small, o)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, l, l.Append(1, []byte("x")))
	closeLog(t, l)
}

func TestCause(t *testing.T) {
	cause := errors.New("disk is gone")
	without := &store.UnavailableError{Reason: "full"}
	for _, c := range []struct{ err, want error }{
		{nil, nil}, {cause, cause}, {&store.UnavailableError{Reason: "failed", Err: cause}, cause}, {without, without},
	} {
		if got := Cause(c.err); got != c.want {
			t.Errorf("Cause(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
