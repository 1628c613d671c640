package spool

import (
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// A fullDisk accepts a number of further writes, and then none until it has room.
type fullDisk struct {
	vfs.FS
	room atomic.Bool
	left atomic.Int64
}

func newFullDisk(fs vfs.FS, reason error, writes int64) *fullDisk {
	d := &fullDisk{}
	d.left.Store(writes)
	d.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		taken := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate || op.Kind == errorfs.OpCreate
		if !d.room.Load() && taken && d.left.Add(-1) < 0 {
			return reason
		}
		return nil
	}))
	return d
}

// until waits until a condition that depends on other goroutines is true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// settle acts as a user of Notes: it settles the hours that a start has found in the log.
func settle(t *testing.T, s *Spool) {
	t.Helper()
	if err := s.Notes().Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// segments are those of a spool's log.
func segments(t *testing.T, fs vfs.FS) []wal.Segment {
	t.Helper()
	all, err := wal.Segments(fs, fs.PathJoin("spool", logName))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// waiting fills a spool that has no sink, in several generations and segments, the
// last generation without an end if that is wanted.
func waiting(t *testing.T, fs vfs.FS, cfg Config, open bool) content {
	t.Helper()
	s := mustOpen(t, fs, cfg, Options{})
	want := content{}
	for range 4 {
		if _, err := fill(s, want, 40); err != nil {
			t.Fatal(err)
		}
	}
	if !open {
		s.order.Lock()
		if s.active.Load().Samples() > 0 {
			if err := s.cutLocked(); err != nil {
				t.Fatal(err)
			}
		}
		s.order.Unlock()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return want
}

// seen is what a view sees over what the remote store has.
func seen(t *testing.T, s *Spool, sink *remote, want content) error {
	t.Helper()
	v := s.View() // before the remote store is read
	defer v.Close()
	got := sink.content()
	metrics := map[string]bool{}
	for id := range model.SeriesNumber(s.series.Count() + 1) {
		if series, ok := v.SeriesOf(id); ok {
			metrics[series.Metric] = true
		}
	}
	for metric := range metrics {
		got.overlay(t, v, metric)
	}
	return got.diff(want)
}

// TestStartOnAFullDisk: a spool opens although nothing can be written, whichever
// write is the first to fail. What waits is read and drained, which gives the space of
// the log back; writers are told that the disk is full, until there is room.
func TestStartOnAFullDisk(t *testing.T) {
	for writes := int64(0); startOnAFullDisk(t, syscall.ENOSPC, writes, writes%2 == 0); writes++ {
		if writes > 20 {
			t.Fatalf("after %d writes a start still meets it", writes)
		}
	}
	startOnAFullDisk(t, syscall.EDQUOT, 0, true)
}

// startOnAFullDisk reports whether a start met the full disk.
func startOnAFullDisk(t *testing.T, reason error, writes int64, open bool) (met bool) {
	t.Helper()
	mem := vfs.NewMem()
	cfg := tinyConfig()
	cfg.MaxMemory = 4 * units.MiB
	want := waiting(t, mem, cfg, open)
	before := segments(t, mem)
	disk := newFullDisk(mem, reason, writes)
	s := mustOpen(t, disk, cfg, Options{})
	sink := newRemote()
	if met = s.Healthy() != nil; met {
		var unavailable *store.UnavailableError
		err := tryPut(s, testSeries("load", 1), 1, 1)
		if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("%v after %d writes: a writer is told %v", reason, writes, err)
		}
		if after := segments(t, mem); len(after) > len(before) {
			t.Errorf("%v after %d writes: %d log files became %d", reason, writes, len(before), len(after))
		}
	}
	if err := seen(t, s, sink, want); err != nil {
		t.Errorf("%v after %d writes: before it drains: %v", reason, writes, err)
	}
	s.Start(sink)
	until(t, "drained", func() bool { return s.Health().Samples == 0 })
	if err := sink.content().diff(want); err != nil {
		t.Errorf("%v after %d writes: drained: %v", reason, writes, err)
	}
	if met {
		until(t, "the log's space is given back", func() bool { return len(segments(t, mem)) == 0 })
		if h := s.Health(); h.LogBytes != 0 {
			t.Errorf("an empty log counts as %d bytes", h.LogBytes)
		}
	}
	disk.room.Store(true)
	until(t, "writes are taken", func() bool { return s.Healthy() == nil })
	if _, err := fill(s, want, 30); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, mem, cfg, Options{Sink: sink})
	defer s.Close()
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := sink.content().diff(want); err != nil {
		t.Errorf("%v after %d writes: at the end: %v", reason, writes, err)
	}
	return met
}

// TestKilledOnAFullDisk: a process that is killed on a full disk, at any number of
// generations drained, loses nothing, also if the next one starts there too.
func TestKilledOnAFullDisk(t *testing.T) {
	drained := 0
	for ; killedOnAFullDisk(t, drained); drained++ {
	}
	if drained < 3 {
		t.Errorf("only %d generations", drained)
	}
}

// killedOnAFullDisk reports whether there were so many generations to drain.
func killedOnAFullDisk(t *testing.T, drained int) (enough bool) {
	t.Helper()
	mem := crashfs.New()
	cfg := tinyConfig()
	cfg.MaxMemory = 4 * units.MiB
	want := waiting(t, mem, cfg, true)
	sink := newRemote()
	sink.gate = make(chan struct{}, 1000)
	s := mustOpen(t, newFullDisk(mem, syscall.ENOSPC, 0), cfg, Options{Sink: sink})
	all := s.Health().Generations + 1
	for range drained {
		sink.gate <- struct{}{}
	}
	until(t, "some drained", func() bool { return len(sink.gate) == 0 && s.Health().Generations <= max(0, all-drained) })
	for range 2 {
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, newFullDisk(mem, syscall.ENOSPC, 0), cfg, Options{})
		if err := seen(t, s, sink, want); err != nil {
			t.Errorf("%d drained: %v", drained, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sink.gate = nil
	s = mustOpen(t, mem, cfg, Options{Sink: sink})
	defer s.Close()
	if _, err := fill(s, want, 30); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := sink.content().diff(want); err != nil {
		t.Errorf("%d drained: at the end: %v", drained, err)
	}
	return drained < all
}

// TestStartOnAFullDiskWithoutMemory: what memory has no room for has to go to files.
// On a full disk the start says so, and how to start all the same.
func TestStartOnAFullDiskWithoutMemory(t *testing.T) {
	mem := vfs.NewMem()
	cfg := tinyConfig()
	s := mustOpen(t, mem, cfg, Options{})
	want := content{}
	if _, err := fill(s, want, 2000); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	disk := newFullDisk(mem, syscall.ENOSPC, 0)
	s, err := Open(disk, "spool", cfg, quickRetries(Options{Section: "cassandra.spool"}))
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "cassandra.spool.max_memory of 128KiB is reached and the disk is full") {
		t.Fatalf("without room in memory: %v", err)
	}
	cfg.MaxMemory = 64 * units.MiB
	sink := newRemote()
	s = mustOpen(t, disk, cfg, Options{Sink: sink})
	defer s.Close()
	until(t, "drained", func() bool { return s.Health().Samples == 0 })
	if err := sink.content().diff(want); err != nil {
		t.Error(err)
	}
}

// TestLogStaysUntilItsEndIsKnown: on a full disk the log is removed only after the file that says that
// there is one. Otherwise the next start would say that the log is missing.
func TestLogStaysUntilItsEndIsKnown(t *testing.T) {
	mem := vfs.NewMem()
	waiting(t, mem, tinyConfig(), true)
	var broken atomic.Bool
	broken.Store(true)
	disk := newFullDisk(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpRemove && strings.HasSuffix(op.Path, begunName) {
			return errorfs.ErrInjected
		}
		return nil
	})), syscall.ENOSPC, 0)
	s := mustOpen(t, disk, tinyConfig(), Options{})
	defer s.Close()
	s.Start(newRemote())
	until(t, "all is drained, and the log cannot be removed", func() bool { return errors.Is(s.giveUp(0), errorfs.ErrInjected) })
	if len(segments(t, mem)) == 0 {
		t.Error("the log is removed before the file that says that there is one")
	}
	broken.Store(false)
	until(t, "the log is removed", func() bool { return len(segments(t, mem)) == 0 })
	if _, err := mem.Stat("spool/" + begunName); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the log is removed, and the file that says that there is one: %v", err)
	}
}

// TestMetricsAreTaken: a spool whose metrics are already registered does not open.
func TestMetricsAreTaken(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_spool_sink_seconds"}))
	if s, err := Open(vfs.NewMem(), "spool", tinyConfig(), quickRetries(Options{Sink: &drop{}, Registerer: r})); err == nil {
		_ = s.Close()
		t.Error("a spool opens without its metrics")
	}
}

// TestBrokenDiskThatIsFull: whichever operation fails for another reason once a start has met
// the full disk, the start ends with that or the spool refuses writes. It never continues
// without a log.
func TestBrokenDiskThatIsFull(t *testing.T) {
	for n := int64(1); ; n++ {
		mem := vfs.NewMem()
		waiting(t, mem, tinyConfig(), true)
		var met atomic.Bool
		var count atomic.Int64
		disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch {
			case met.Load() && op.Kind != errorfs.OpFileClose && count.Add(1) == n:
				return errorfs.ErrInjected
			case op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate || op.Kind == errorfs.OpCreate:
				met.Store(true)
				return syscall.ENOSPC
			}
			return nil
		}))
		s, err := Open(disk, "spool", tinyConfig(), quickRetries(Options{}))
		reached := count.Load() >= n
		if err != nil {
			if !errors.Is(err, errorfs.ErrInjected) {
				t.Errorf("operation %d fails: %v", n, err)
			}
			continue
		}
		var unavailable *store.UnavailableError
		if err := tryPut(s, testSeries("load", 1), 1, 1); !errors.As(err, &unavailable) {
			t.Errorf("operation %d fails, and a writer is told %v", n, err)
		}
		if err := s.Close(); err != nil {
			t.Logf("operation %d fails: closing: %v", n, err)
		}
		if !reached {
			if n < 3 {
				t.Errorf("a start meets the full disk in its last %d operations", n-1)
			}
			return
		}
	}
}
