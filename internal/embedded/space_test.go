package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// fullDisk is a file system that has no space while full is set. The catalogue
// still has some: that is what min_free_bytes is for.
type fullDisk struct {
	vfs.FS
	free atomic.Uint64
	full *atomic.Bool
}

func newFullDisk() (*fullDisk, *vfs.MemFS) {
	mem, full := vfs.NewCrashableMem(), &atomic.Bool{}
	d := &fullDisk{full: full, FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFilePreallocate:
			if full.Load() && !strings.Contains(op.Path, catalogueName) {
				return syscall.ENOSPC
			}
		}
		return nil
	}))}
	d.free.Store(1 << 40)
	return d, mem
}

func (d *fullDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load()}, nil
}

// appendUntil tries to write n more samples until it works, or fails, as wanted.
func (c *crashSeries) appendUntil(t *testing.T, s *Store, works bool) {
	t.Helper()
	for range 1000 {
		before := c.acked.Load()
		c.writeOnce(context.Background(), s, 10)
		if (c.acked.Load() > before) == works {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("after 10 s, appending works: %v", !works)
}

func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		name  string
		fill  func(d *fullDisk)
		empty func(d *fullDisk)
	}{
		{"seen in time", func(d *fullDisk) { d.free.Store(1000) }, func(d *fullDisk) { d.free.Store(1 << 40) }},
		{"all at once", func(d *fullDisk) { d.full.Store(true); d.free.Store(0) }, func(d *fullDisk) { d.free.Store(1 << 40); d.full.Store(false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, mem := newFullDisk()
			s, err := Open(disk, "data", DefaultConfig(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			all := newCrashSeries(3)
			all[0].appendUntil(t, s, true)
			c.fill(disk)
			all[0].appendUntil(t, s, false)
			all[1].appendUntil(t, s, false) // a series that the broken log may have lost
			var unavailable *store.UnavailableError
			if err := s.Healthy(); !errors.As(err, &unavailable) {
				t.Errorf("Healthy() = %v, want an *UnavailableError", err)
			}
			if err := all[0].check(s); err != nil {
				t.Errorf("reading from a full disk: %v", err)
			}
			c.empty(disk)
			for _, series := range all {
				series.appendUntil(t, s, true)
			}
			if err := s.Healthy(); err != nil {
				t.Errorf("Healthy() = %v after there is space again", err)
			}
			crashed := reopenAfterKill(t, mem, s)
			defer crashed.Close()
			for _, series := range all {
				if err := series.check(crashed); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// reopenAfterKill opens a copy of the store's files as they are at this moment: the
// store may be in the middle of a checkpoint.
func reopenAfterKill(t *testing.T, mem *vfs.MemFS, s *Store) *Store {
	t.Helper()
	copied := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(copied, "data", DefaultConfig(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A checkpoint that waits for space counts on segments that the log never came
// to write. The log that follows has their numbers, and must be replayed.
func TestDiskFullDuringCheckpoint(t *testing.T) {
	disk, mem := newFullDisk()
	held := make(chan struct{})
	holding := &atomic.Bool{}
	disk.FS = errorfs.Wrap(disk.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "/"+logName+"/") && holding.Load() {
			<-held
		}
		return nil
	}))
	cfg := DefaultConfig()
	cfg.Log.SegmentBytes = 4 * units.KiB
	cfg.MaintenanceInterval = 10 * time.Millisecond
	s, err := Open(disk, "data", cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := newCrashSeries(6)
	all[0].appendUntil(t, s, true)
	holding.Store(true)
	var writers sync.WaitGroup
	for _, series := range all[1:] { // some segments, all in memory
		writers.Go(func() { series.writeOnce(context.Background(), s, 3000) })
	}
	for s.active.Load().Samples() < 5*3000 {
		time.Sleep(time.Millisecond)
	}
	disk.full.Store(true)
	disk.free.Store(0)
	if err := s.checkpoint(); err == nil {
		t.Fatal("a checkpoint to a full disk succeeded")
	}
	holding.Store(false)
	close(held)
	writers.Wait()
	disk.free.Store(1 << 40)
	disk.full.Store(false)
	for _, series := range all {
		series.appendUntil(t, s, true)
	}
	if s.frozenBytes.Load() > 0 { // else the store has gone on by itself
		if err := s.checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	for _, series := range all {
		series.appendUntil(t, s, true)
	}
	crashed := reopenAfterKill(t, mem, s)
	defer crashed.Close()
	for _, series := range all {
		if err := series.check(crashed); err != nil {
			t.Error(err)
		}
	}
}

// TestLogFilesOfAFullDisk: while there is no space, or a quota is used up, and
// nobody looks at the free space, the attempts to go on leave no files.
func TestLogFilesOfAFullDisk(t *testing.T) {
	for _, reason := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		var full atomic.Bool
		mem := vfs.NewCrashableMem()
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate) && !strings.Contains(op.Path, catalogueName) {
				return reason
			}
			return nil
		}))
		s := mustOpen(t, fs, quietConfig("fsync"))
		c := newCrashSeries(1)[0]
		c.appendUntil(t, s, true)
		full.Store(true)
		c.appendUntil(t, s, false)
		before, err := wal.Segments(mem, "data/log")
		s.must(t, err)
		for range 5 {
			s.lookAtSpace()
		}
		after, err := wal.Segments(mem, "data/log")
		s.must(t, err)
		if len(after) > len(before) {
			t.Errorf("%v: %d log files became %d", reason, len(before), len(after))
		}
		full.Store(false)
		c.appendUntil(t, s, true)
		s.must(t, s.Healthy())
		s = reopenAfterKill(t, mem, s)
		if err := c.check(s); err != nil {
			t.Error(err)
		}
		s.must(t, s.Close())
	}
}

// TestReopenLogBesideMerges replaces the log again and again while merges commit;
// it is for the race detector.
func TestReopenLogBesideMerges(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
	defer s.Close()
	c := newCrashSeries(1)[0]
	c.writeOnce(context.Background(), s, 50)
	s.must(t, s.checkpoint())
	var merges sync.WaitGroup
	merges.Go(func() {
		for range 20 {
			if err := s.Compact(context.Background()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 20 {
		if err := s.reopenLog(); err != nil {
			t.Error(err)
		}
	}
	merges.Wait()
}
