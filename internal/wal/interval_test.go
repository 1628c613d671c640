package wal

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
)

// TestSyncUnderLoad: with durability interval, writes that arrive faster than the
// interval are synced once per interval, and a failed sync is an error.
func TestSyncUnderLoad(t *testing.T) { synctest.Test(t, syncUnderLoad) }

func syncUnderLoad(t *testing.T) {
	const interval = time.Second
	var broken atomic.Bool
	fsys := errorfs.Wrap(crashfs.New(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileSyncData {
			return syscall.EIO
		}
		return nil
	}))
	d, err := openDirectory(fsys, testDir, DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	w, err := beginSegment(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.file.Close()
	w.metrics = newMetrics(&Log{dir: d})
	w.interval, w.syncInterval, w.step = true, interval, reserveStep
	w.timer = time.NewTimer(time.Hour)
	w.timer.Stop()
	write := func() error {
		var header [recordHeaderSize]byte
		frame(header[:], 1, 0)
		if err := w.write(&buffer{data: header[:], records: 1}); err != nil {
			return err
		}
		return w.syncIfDue()
	}
	for n := range 20 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		want := int64(n%3+1) % 3 * recordHeaderSize // each third write comes after the interval
		if behind := w.offset - w.durable; behind != want {
			t.Fatalf("after write %d, %d bytes are not synced, want %d", n, behind, want)
		}
		time.Sleep(interval * 7 / 10)
	}
	broken.Store(true)
	for range 3 {
		if err = errors.Join(err, write()); err != nil {
			break
		}
		time.Sleep(interval * 7 / 10)
	}
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("a sync that fails under load: %v", err)
	}
}

// TestSyncThatFails: with durability interval, a failed sync ends the log, whether the
// log is idle or a write came before.
func TestSyncThatFails(t *testing.T) {
	for _, underLoad := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { syncThatFails(t, underLoad) })
	}
}

func syncThatFails(t *testing.T, underLoad bool) {
	cfg := DefaultConfig()
	cfg.Durability, cfg.SyncInterval = Interval, time.Second
	var broken atomic.Bool
	fsys := errorfs.Wrap(crashfs.New(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case !broken.Load():
		case op.Kind == errorfs.OpFileSyncData:
			return syscall.EIO
		case op.Kind == errorfs.OpFileWrite:
			time.Sleep(2 * cfg.SyncInterval) // the sync is due before it ends
		}
		return nil
	}))
	l, err := Open(fsys, "log", cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(t.Context(), l.Append(1, []byte("a"))); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if underLoad {
		if err := l.Wait(t.Context(), l.Append(1, []byte("b"))); err != nil {
			t.Fatal(err)
		}
	}
	<-l.Failed()
	if err := l.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("under load %v: %v", underLoad, err)
	}
}

// TestTimerBesideARecord: if the timer expires just as a record is appended, the writer
// receives the record's signal; otherwise the next append would block on the full
// channel, and all others with it.
func TestTimerBesideARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Log{filling: &buffer{}, wake: make(chan struct{}, 1)}
		tick := make(chan time.Time)
		timer := &time.Timer{C: tick}
		taken := make(chan *buffer)
		go func() {
			b, _ := l.take(&buffer{}, timer, &group{})
			taken <- b
		}()
		synctest.Wait()
		l.mu.Lock()
		tick <- time.Now()
		l.filling.data = []byte("a record")
		l.wakeLocked()
		l.mu.Unlock()
		if b := <-taken; b != nil || len(l.wake) != 0 {
			t.Errorf("took %v, %d signals are left", b, len(l.wake))
		}
		if b, _ := l.take(&buffer{}, timer, &group{}); b == nil {
			t.Error("the record is gone")
		}
	})
}

// TestReleaseOfNothing: releasing segments that are already released does no I/O.
func TestReleaseOfNothing(t *testing.T) {
	var broken atomic.Bool
	fsys := errorfs.Wrap(crashfs.New(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() {
			return syscall.EIO
		}
		return nil
	}))
	l, err := Open(fsys, "log", DefaultConfig(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(t.Context(), l.Append(1, []byte("a"))); err != nil {
		t.Fatal(err)
	}
	next, err := l.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(next); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if err := l.Release(next); err != nil {
		t.Errorf("a second release: %v", err)
	}
	broken.Store(false)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
