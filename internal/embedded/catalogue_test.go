package embedded

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
	"varve/internal/store/storetest"
	"varve/internal/units"
	"varve/internal/units/unitstest"
)

// TestConfigBounds: both ends of each range are allowed, and values beyond are
// refused. What references in memory can hold bounds head_bytes_max.
func TestConfigBounds(t *testing.T) {
	check := unitstest.Bounds(t, DefaultConfig)
	check("row_width", func(c *Config, v int64) { c.RowWidth = time.Duration(v) },
		[]int64{int64(time.Minute), int64(math.MaxInt32 * time.Millisecond)},
		[]int64{int64(time.Minute) - 1e6, int64(time.Minute) + 1, int64((math.MaxInt32 + 1) * time.Millisecond)})
	check("head_bytes", func(c *Config, v int64) { c.HeadBytes = units.Bytes(v) }, []int64{0, 1 << 20, 80 << 20}, []int64{1<<20 - 1, -1, 80<<20 + 1, math.MaxInt64})
	check("head_bytes_max", func(c *Config, v int64) { c.HeadBytesMax = units.Bytes(v) }, []int64{0, 2 << 20, 2 << 30}, []int64{2<<20 - 1, 2<<30 + 1, 1, -1})
	check("checkpoint_samples", func(c *Config, v int64) { c.CheckpointSamples = v }, []int64{1}, []int64{0})
	check("checkpoint_interval", func(c *Config, v int64) { c.CheckpointInterval = time.Duration(v) }, []int64{1e9}, []int64{1e9 - 1})
	check("merge_files", func(c *Config, v int64) { c.MergeFiles = int(v) }, []int64{2}, []int64{1})
	check("maintenance_interval", func(c *Config, v int64) { c.MaintenanceInterval = time.Duration(v) }, []int64{1e7}, []int64{1e7 - 1})
	check("min_free_bytes", func(c *Config, v int64) { c.MinFreeBytes = units.Bytes(v) }, []int64{0}, []int64{-1})
	check("page_cache_bytes", func(c *Config, v int64) { c.PageCacheBytes = units.Bytes(v) }, []int64{0}, []int64{-1})
	check("catalogue_cache_bytes", func(c *Config, v int64) { c.CatalogueCacheBytes = units.Bytes(v) }, []int64{0}, []int64{-1})
	check("log", func(c *Config, v int64) { c.Log.SegmentBytes = units.Bytes(v) }, []int64{4 << 10}, []int64{4<<10 - 1})
}

// TestHeadGrowsWithSeries: recent samples of very many series may take more memory, but not more
// than a part of the machine's memory, and never more than configured.
func TestHeadGrowsWithSeries(t *testing.T) {
	for _, c := range []struct {
		set            units.Bytes
		series, memory int64
		room           units.Bytes
		most, begins   units.Bytes
	}{
		{0, 0, 0, math.MaxInt64, 160 * units.MiB, 48 * units.MiB},
		{0, 250_000, 64 << 30, math.MaxInt64, 160 * units.MiB, 48 * units.MiB},
		{0, 250_000 + 102_400, 64 << 30, math.MaxInt64, 260 * units.MiB, 78 * units.MiB},
		{0, 1 << 32, 16 << 30, math.MaxInt64, units.GiB, units.GiB * 3 / 10},
		{0, 1 << 32, 1 << 40, math.MaxInt64, head.MaxBytes, head.MaxBytes * 3 / 10},
		{0, 1 << 32, 1600 << 20, math.MaxInt64, 160 * units.MiB, 48 * units.MiB},
		{0, 1 << 32, 1000 << 20, math.MaxInt64, 100 * units.MiB, 30 * units.MiB},
		{0, 0, 500 << 20, 0, 50 * units.MiB, 15 * units.MiB},
		{0, 0, 1 << 20, 0, 2 * units.MiB, 2 * units.MiB * 3 / 10},
		{0, 1 << 32, 0, math.MaxInt64, 160 * units.MiB, 48 * units.MiB},
		{0, 1 << 32, 16 << 30, 400 * units.MiB, 200 * units.MiB, 60 * units.MiB},
		{0, 1 << 32, 16 << 30, 0, 160 * units.MiB, 48 * units.MiB},
		{20 * units.MiB, 1 << 32, 64 << 30, 0, 20 * units.MiB, 6 * units.MiB},
	} {
		cfg := DefaultConfig()
		cfg.HeadBytesMax = c.set
		has := means{c.memory, int64(c.room)}
		if most, begins := cfg.headBytesMax(c.series, has), cfg.headBytes(c.series, has); most != c.most || begins != c.begins {
			t.Errorf("head_bytes_max %v, %d series, %+v: %v and %v, want %v and %v", c.set, c.series, has, most, begins, c.most, c.begins)
		}
	}
}

// TestCatalogueFails: after a commit failed it is unknown what is on disk, so the
// files of the change stay. Neither checkpoints nor merges are tried after that,
// each of which would leave more; the store says that it has to be restarted, and
// nothing is lost.
func TestCatalogueFails(t *testing.T) {
	mem := vfs.NewMem()
	cfg := quietConfig("fsync")
	cfg.HeadBytes, cfg.HeadBytesMax = 16*units.MiB, 32*units.MiB
	s := mustOpen(t, mem, cfg)
	c := newCrashSeries(1)[0]
	c.writeOnce(context.Background(), s, 1000)
	s.must(t, s.checkpoint())
	c.writeOnce(context.Background(), s, 1000)

	readOnlyCatalogue(t, s, mem) // Pebble ends the process when the disk fails; other errors are returned
	s.background.Go(func() { s.checkpointer(s.ctx) })
	s.background.Go(func() { s.merger(s.ctx) })

	if err := s.checkpoint(); !errors.Is(err, pebble.ErrReadOnly) {
		t.Fatalf("checkpoint: %v, want that the catalogue is read-only", err)
	}
	before := blockFiles(t, s, mem)
	if before != 2 {
		t.Errorf("%d block files, want the one that counts and the one in doubt", before)
	}
	for range 3 {
		if err := s.checkpoint(); !errors.Is(err, pebble.ErrReadOnly) {
			t.Errorf("another checkpoint: %v", err)
		}
		if err := s.Compact(context.Background()); !errors.Is(err, pebble.ErrReadOnly) {
			t.Errorf("compact: %v", err)
		}
		if err := s.maintain(context.Background()); !errors.Is(err, pebble.ErrReadOnly) {
			t.Errorf("maintenance: %v", err)
		}
	}
	if after := blockFiles(t, s, mem); after != before {
		t.Errorf("%d block files became %d", before, after)
	}
	var unavailable *store.UnavailableError
	if err := s.Healthy(); !errors.As(err, &unavailable) || unavailable.Reason != "the catalogue failed; the store accepts no more writes until it is restarted" {
		t.Errorf("Healthy() = %v", err)
	}
	s.askCheckpoint() // its goroutine ends, and so does that of merges
	s.askMerge()
	if err := c.check(s); err != nil {
		t.Error(err)
	}
	s.must(t, s.Close())

	s = mustOpen(t, mem, cfg)
	defer s.Close()
	if err := c.check(s); err != nil {
		t.Error(err)
	}
	if n := blockFiles(t, s, mem); n != 1 {
		t.Errorf("%d block files after a restart, want the one that counts", n)
	}
}

func blockFiles(t *testing.T, s *Store, fs vfs.FS) int {
	t.Helper()
	names, err := fs.List(s.path(datadir.Blocks))
	s.must(t, err)
	return len(names)
}

// readOnlyCatalogue ends the background work of a store and makes each later commit fail.
func readOnlyCatalogue(t *testing.T, s *Store, fs vfs.FS) {
	t.Helper()
	s.stop()
	s.background.Wait() // nobody looks at the catalogue while it is replaced
	s.must(t, s.catalogue.Close())
	toRead, err := catalogue.OpenToRead(fs, s.path(datadir.Catalogue))
	s.must(t, err)
	s.catalogue = toRead
	s.ctx, s.stop = context.WithCancel(context.Background())
}

// TestRewritesThatAreNotCommitted: a fold, and the removal of files of which everything has expired, fail if the
// catalogue accepts no change. Nothing is lost.
func TestRewritesThatAreNotCommitted(t *testing.T) {
	f := &foldTest{T: t, fs: crashfs.New(), samples: map[string]map[int64]float64{}, oldest: map[string]int64{}, shelf: retention.NewShelf(book(t, "10s:1h,60s:6h,10m:2d"))}
	const now = 1_700_000_000_000
	f.nowMS.Store(now - 40_000_000) // nothing is due yet for the merger
	f.open(f.fs)
	for i := range int64(60) {
		f.write("thin.long", model.TypeLong, now-7_200_000-i*30_000)
	}
	f.must(t, f.checkpoint())
	readOnlyCatalogue(t, f.Store, f.fs)
	f.nowMS.Store(now)
	st := f.acquire()
	files := slices.Clone(st.files)
	f.release(st)
	f.merging.Lock()
	if err := f.fold(t.Context(), files); !errors.Is(err, pebble.ErrReadOnly) {
		t.Errorf("a fold: %v", err)
	}
	f.merging.Unlock()
	_ = f.Store.Close()
	f.open(f.fs)
	f.check("after a restart")
	f.must(t, f.Store.Close())

	mem, clock := crashfs.New(), storetest.NewClock(time.UnixMilli(crashOrigin))
	s, err := Open(mem, "data", quietConfig("fsync"), Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Create(t.Context(), model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	s.must(t, err)
	var b store.Batch
	b.Reset(s.Epoch())
	b.AddLong(ref, crashOrigin, 1, 60)
	s.must(t, s.Append(t.Context(), &b))
	s.must(t, s.checkpoint())
	readOnlyCatalogue(t, s, mem)
	clock.Advance(time.Hour)
	if err := s.maintain(t.Context()); !errors.Is(err, pebble.ErrReadOnly) {
		t.Errorf("the removal of an expired file: %v", err)
	}
	_ = s.Close()
}

// TestHeadLimit: the limit counts the series of the larger head, and returns to the usual one
// when their samples are in files.
func TestHeadLimit(t *testing.T) {
	cfg := quietConfig("fsync")
	s := mustOpen(t, vfs.NewMem(), cfg)
	defer s.Close()
	s.memory = 64 << 30
	limit := func(active, frozen int64) {
		t.Helper()
		want := int64(headBytesLeast) + max(0, active-usualSeries, frozen-usualSeries)*int64(headBytesSeries)
		if got := s.headMost(); got != want {
			t.Errorf("%d and %d series: the limit is %d, want %d", active, frozen, got, want)
		}
	}
	limit(0, 0)
	usual, crowded := s.active.Load(), s.newHead()
	crowd(crowded, 6000)
	s.active.Store(crowded)
	limit(6000*64, 0)
	s.frozenRecords.Store(400_000)
	limit(6000*64, 400_000)
	s.active.Store(usual)
	limit(0, 400_000)
	c := newCrashSeries(1)[0]
	c.writeOnce(context.Background(), s, 1000)
	s.must(t, s.checkpoint())
	limit(0, 0)
}
