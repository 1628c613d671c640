package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/head"
	"varve/internal/model"
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

func newFullDisk() (*fullDisk, *crashfs.FS) {
	mem, full := crashfs.New(), &atomic.Bool{}
	d := &fullDisk{full: full, FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFilePreallocate:
			if full.Load() && !strings.Contains(op.Path, datadir.Catalogue) {
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
	for range 12_000 { // only a test that fails waits for so long
		before := c.acked.Load()
		c.writeOnce(context.Background(), s, 10)
		if (c.acked.Load() > before) == works {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("after two minutes, appending works: %v", !works)
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
func reopenAfterKill(t *testing.T, mem *crashfs.FS, s *Store) *Store {
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
		if op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "/"+datadir.Log+"/") && holding.Load() {
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

// TestLogFilesOfAFullDisk: while there is no space, or a quota is used up,
// which the free space does not show, repeated attempts to continue create no
// log files.
func TestLogFilesOfAFullDisk(t *testing.T) {
	for _, reason := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		var full atomic.Bool
		mem := crashfs.New()
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate) && !strings.Contains(op.Path, datadir.Catalogue) {
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

// TestDeletionsThatMetAFullDisk: a deletion that failed because the log was full may
// have forgotten series, which are created again under other ids. The log that
// follows has it, so that a restart finds what was there before.
func TestDeletionsThatMetAFullDisk(t *testing.T) {
	disk, mem := newFullDisk()
	s := mustOpen(t, disk, quietConfig("fsync"))
	all := newCrashSeries(3)
	for _, c := range all {
		c.appendUntil(t, s, true)
	}
	s.must(t, s.checkpoint())
	for _, c := range all {
		c.appendUntil(t, s, true) // and more in the log
	}
	disk.full.Store(true)
	disk.free.Store(0)
	var unavailable *store.UnavailableError
	for i, c := range all[:2] {
		if err := s.Delete(t.Context(), store.Deletion{Metric: c.Metric, Matchers: []model.Matcher{{Tag: "n", Values: []string{fmt.Sprint(i)}}}, Range: model.AllTime}); !errors.As(err, &unavailable) {
			t.Fatalf("a deletion on a full disk: %v", err)
		}
	}
	disk.full.Store(false)
	disk.free.Store(1 << 40)
	s.lookAtSpace()
	again := &crashSeries{Series: all[0].Series}
	again.appendUntil(t, s, true)
	want, err := storeContent(s)
	s.must(t, err)
	s = reopenAfterKill(t, mem, s)
	got, err := storeContent(s)
	s.must(t, err)
	if got != want {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", got, want)
	}
	s.must(t, s.Delete(t.Context(), store.Deletion{Metric: all[0].Metric, Range: model.AllTime}))
	if got, err := storeContent(s); err != nil || got != "" {
		t.Errorf("after all was deleted: %v\n%s", err, got)
	}
	s.must(t, s.Close())
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

// TestFullDiskError holds what refused writers are told to the numbers of the
// moment, and to one way out.
func TestFullDiskError(t *testing.T) {
	disk, _ := newFullDisk()
	cfg := quietConfig("fsync")
	cfg.MinFreeBytes = 8 * units.MiB
	s := mustOpen(t, disk, cfg)
	defer s.Close()
	write := func(s *Store) error {
		var b store.Batch
		b.Reset(s.Epoch())
		ref, err := s.Create(context.Background(), newCrashSeries(1)[0].Series)
		s.must(t, err)
		b.AddLong(ref, crashOrigin, 1, 0)
		return s.Append(context.Background(), &b)
	}
	check := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	disk.free.Store(uint64(7 * units.MiB))
	s.lookAtSpace()
	check(write(s), "the disk is nearly full: 7168.0 KiB are free; the store stops writing below 8192.0 KiB (embedded.min_free_bytes) and resumes at 10.0 MiB: free some space, delete data, or enlarge the disk")
	disk.free.Store(uint64(9 * units.MiB))
	s.lookAtSpace()
	check(s.Healthy(), "the disk is nearly full: 9216.0 KiB are free; the store stops writing below 8192.0 KiB (embedded.min_free_bytes) and resumes at 10.0 MiB: free some space, delete data, or enlarge the disk")
	disk.free.Store(uint64(10 * units.MiB))
	s.lookAtSpace()
	s.must(t, write(s))

	cfg.MinFreeBytes = 0
	disk, _ = newFullDisk()
	s = mustOpen(t, disk, cfg)
	defer s.Close()
	disk.full.Store(true)
	err := write(s)
	const want = "the disk is full; the store tries to write each second and resumes when that works: free some space, or enlarge the disk: "
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "opened again") || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("without a reserve: %v, want %s...", err, want)
	}
	// The log has failed: a deletion cannot be written either.
	maintenance := map[string]error{
		"Delete":  s.Delete(context.Background(), store.Deletion{Metric: "crash", Range: model.AllTime}),
		"Compact": s.Compact(context.Background()),
	}
	_, maintenance["Backup"] = s.Backup(context.Background(), "full")
	for name, err := range maintenance {
		if unavailable := (*store.UnavailableError)(nil); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "opened again") {
			t.Errorf("%s on a full disk: %v, want %s...", name, err, want)
		}
	}
	disk.full.Store(false)
	s.lookAtSpace()
	s.must(t, write(s))

	// The log has space that it reserved, files have none.
	disk.full.Store(true)
	if err := s.Compact(context.Background()); !errors.As(err, new(*store.UnavailableError)) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Compact without space for files: %v, want %s...", err, want)
	}
	disk.full.Store(false)
	s.lookAtSpace()
}

// putRandom writes n doubles that do not compress, to a file of their own.
func putRandom(t *testing.T, s *Store, metric string, n int, fromMS int64) {
	t.Helper()
	appendRandom(t, s, metric, n, fromMS)
	s.must(t, s.checkpoint())
}

func appendRandom(t *testing.T, s *Store, metric string, n int, fromMS int64) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(fromMS), uint64(n)))
	var b store.Batch
	for at := 0; at < n; at += 10_000 {
		b.Reset(s.Epoch())
		ref, err := s.Create(context.Background(), model.Series{Metric: metric, Type: model.TypeDouble, Tags: model.MustTags("host", "a")})
		s.must(t, err)
		for i := at; i < min(n, at+10_000); i++ {
			b.AddDouble(ref, fromMS+int64(i)*100, random.Float64(), 0)
		}
		s.must(t, s.Append(context.Background(), &b))
	}
}

// TestMergesThatFitGoOn has a merge that is larger than the free space, and others
// that are not.
func TestMergesThatFitGoOn(t *testing.T) {
	disk, _ := newFullDisk()
	cfg := quietConfig("fsync")
	cfg.MinFreeBytes, cfg.MergeFiles = units.MiB, 6
	s := mustOpen(t, disk, cfg)
	defer s.Close()
	disk.free.Store(uint64(3 * units.MiB)) // the six take 4 MiB
	for i := range int64(6) {
		putRandom(t, s, "large", 100_000, s.width.Partition(1_600_000_000_000)+i*10_000_000)
	}
	for i := range int64(30) {
		putRandom(t, s, "small", 500, s.width.Partition(1_700_000_000_000)+i*50_000)
		s.must(t, s.maintain(context.Background()))
	}
	if n := s.Usage().Files; n > 6+6 {
		t.Errorf("%d files, of which only six do not fit", n)
	}
	if err := s.Compact(context.Background()); !errors.As(err, new(*store.UnavailableError)) || !strings.Contains(err.Error(), "embedded.min_free_bytes") || !strings.Contains(err.Error(), "merge 6 block files") {
		t.Errorf("Compact of more than fits: %v", err)
	}
	disk.free.Store(uint64(6 * units.MiB))
	s.must(t, s.Compact(context.Background()))
	if n := s.Usage().Files; n > 2 {
		t.Errorf("%d files after all were merged", n)
	}
}

// TestDeletingFreesAFullDisk deletes while less is free than is deleted.
func TestDeletingFreesAFullDisk(t *testing.T) {
	disk, _ := newFullDisk()
	cfg := quietConfig("fsync")
	cfg.MinFreeBytes = 2 * units.MiB
	s := mustOpen(t, disk, cfg)
	defer s.Close()
	putRandom(t, s, "all", 300_000, crashOrigin)
	putRandom(t, s, "most", 300_000, crashOrigin)
	disk.free.Store(uint64(units.MiB + units.MiB/2))
	s.lookAtSpace()
	if s.Healthy() == nil {
		t.Fatal("the store writes although the disk is nearly full")
	}
	full := s.Usage().FileBytes
	s.must(t, s.Delete(context.Background(),
		store.Deletion{Metric: "all", Range: model.AllTime},
		store.Deletion{Metric: "most", Range: model.TimeRange{StartMS: math.MinInt64, EndMS: crashOrigin + 280_000*100}}))
	s.must(t, s.maintain(context.Background()))
	if u := s.Usage(); u.FileBytes > full/10 {
		t.Errorf("%d bytes of %d are left after nearly all was deleted", u.FileBytes, full)
	}
}

// TestMergeStopsBeforeTheDiskIsFull fills the disk while a merge writes.
func TestMergeStopsBeforeTheDiskIsFull(t *testing.T) {
	disk, mem := newFullDisk()
	var filling atomic.Bool
	disk.FS = errorfs.Wrap(disk.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if filling.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".blk") {
			disk.free.Store(uint64(units.MiB / 4))
		}
		return nil
	}))
	cfg := quietConfig("fsync")
	s := mustOpen(t, disk, cfg)
	for i := range int64(6) {
		putRandom(t, s, "large", 120_000, crashOrigin+i*12_000_000)
	}
	s.must(t, s.Close())
	blocks := func() []string {
		files, err := mem.List("data/" + datadir.Blocks)
		s.must(t, err)
		slices.Sort(files)
		return files
	}
	before := blocks()
	// Only now are there enough files to merge.
	filling.Store(true)
	disk.free.Store(uint64(8 * units.MiB))
	cfg.MinFreeBytes, cfg.MergeFiles = 2*units.MiB, 6
	s = mustOpen(t, disk, cfg)
	defer s.Close()
	s.must(t, s.maintain(context.Background()))
	if after := blocks(); len(before) != 6 || !slices.Equal(before, after) || disk.free.Load() > uint64(units.MiB) {
		t.Errorf("a merge that met a full disk has made %v of %v", after, before)
	}
	filling.Store(false)
	disk.free.Store(1 << 40)
	s.must(t, s.maintain(context.Background()))
	if n := s.Usage().Files; n != 1 {
		t.Errorf("%d files once there is space", n)
	}
}

// A checkpoint for whose new series there is no space is tried again, and leaves no files.
func TestNoSpaceForManySeries(t *testing.T) {
	var full atomic.Bool
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync} {
		mem := crashfs.New()
		s := mustOpen(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind == kind && strings.HasSuffix(op.Path, catalogue.NewSeries) {
				return syscall.ENOSPC
			}
			return nil
		})), quietConfig("fsync"))
		s.must(t, appendMany(t, s))
		full.Store(true)
		for range 2 {
			if err := s.checkpoint(); !wal.NoSpace(err) {
				t.Errorf("%v: a checkpoint without space: %v", kind, err)
			}
		}
		if _, err := mem.Stat("data/" + datadir.Catalogue + "/" + catalogue.NewSeries); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: the table that was not completed: %v", kind, err)
		}
		s.must(t, appendMany(t, s)) // the log takes them
		if files, err := mem.List("data/" + datadir.Blocks); err != nil || len(files) > 0 {
			t.Errorf("%v: %v are left, %v", kind, files, err)
		}
		full.Store(false)
		s.must(t, s.checkpoint())
		s.must(t, s.Healthy())
		s = reopenAfterKill(t, mem, s)
		if n, samples := s.SeriesCount(), s.active.Load().Samples(); n != manySeries || samples == 0 {
			t.Errorf("%v: %d series, %d samples in memory", kind, n, samples)
		}
		s.must(t, s.Close())
	}
}

const manySeries = 2000 // which the catalogue takes as a table

// appendMany stores a sample of each of many series.
func appendMany(t *testing.T, s *Store) error {
	t.Helper()
	b := &store.Batch{}
	b.Reset(s.Epoch())
	for i := range manySeries {
		ref, err := s.Create(t.Context(), model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("n", fmt.Sprint(i))})
		s.must(t, err)
		b.AddLong(ref, 1, 1, 0)
	}
	return s.Append(t.Context(), b)
}

// A log that takes the place of one that met a full disk introduces again what no checkpoint
// has written. A start that finds both logs writes each series once.
func TestManySeriesOfTwoLogs(t *testing.T) {
	disk, mem := newFullDisk()
	s := mustOpen(t, disk, quietConfig("fsync"))
	s.must(t, appendMany(t, s))
	disk.full.Store(true)
	if err := appendMany(t, s); err == nil {
		t.Fatal("a full disk took samples")
	}
	disk.full.Store(false)
	s.log.LookAtSpace(s.reopenLog)
	s.must(t, appendMany(t, s))
	s = reopenAfterKill(t, mem, s)
	s.must(t, s.checkpoint())
	if n := s.SeriesCount(); n != manySeries {
		t.Errorf("%d series, want %d", n, manySeries)
	}
	s.must(t, s.Close())
}

// TestHeadFitsOnDisk: recent samples of very many series take more memory only while the disk has room for
// the files that they are written to. When the room shrinks, a checkpoint begins.
func TestHeadFitsOnDisk(t *testing.T) {
	disk, _ := newFullDisk()
	cfg := quietConfig("fsync")
	cfg.MinFreeBytes = 256 * units.MiB
	s := mustOpen(t, disk, cfg)
	defer s.Close()
	s.stop()
	s.background.Wait() // no other goroutine receives the request
	select {
	case <-s.full:
	default:
	}
	s.memory = 64 << 30
	crowd(s.active.Load(), 16_000)
	for _, c := range []struct{ free, want units.Bytes }{
		{1 << 40, headBytesLeast + (16_000*64-usualSeries)*headBytesSeries},
		{1256 * units.MiB, 500 * units.MiB},
		{512 * units.MiB, headBytesLeast},
		{0, headBytesLeast},
	} {
		disk.free.Store(uint64(c.free))
		s.lookAtSpace()
		if got := units.Bytes(s.headMost()); got != c.want {
			t.Errorf("%v are free: recent samples may take %v, want %v", c.free, got, c.want)
		}
		select {
		case <-s.full:
			if c.free > 512*units.MiB {
				t.Errorf("%v are free: a checkpoint is asked for", c.free)
			}
		default:
			if c.free <= 512*units.MiB {
				t.Errorf("%v are free, and no checkpoint is asked for", c.free)
			}
		}
	}
}

// crowd adds a sample of one of 64 neighbouring series each, so many times.
func crowd(h *head.Head, pages int) {
	var b store.Batch
	for i := range pages {
		b.AddLong(store.Ref(i*64), 1, 1, 0)
	}
	h.Append(&b, slices.Repeat([]model.Kind{model.Long}, pages))
}
