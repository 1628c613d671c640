package expiry

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
)

// TestCollector compares what a scan remembers with all that it has seen.
func TestCollector(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := collector{nowMS: 100, expired: roaring.New(), allMS: math.MaxInt64}
		n := rapid.SampledFrom([]int{1, Kept, Kept + 1, 5 * Kept}).Draw(t, "series")
		span := rapid.SampledFrom([]int64{1, 150, 1 << 40}).Draw(t, "span")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		all := make([]int64, n)
		for id := range all {
			if all[id] = rng.Int64N(span); rng.IntN(10) == 0 {
				all[id] = math.MaxInt64
			}
			c.add(model.SeriesNumber(id), all[id])
			if len(c.next) >= 2*Kept {
				t.Fatalf("%d are held after %d series", len(c.next), id+1)
			}
		}
		c.cut()
		kept := make(map[model.SeriesNumber]bool)
		for i, x := range c.next {
			kept[x.id] = true
			if x.ms != all[x.id] || i > 0 && c.next[i-1].ms > x.ms {
				t.Fatalf("series %d, which expires at %d, is remembered with %d", x.id, all[x.id], x.ms)
			}
		}
		if len(c.next) > Kept {
			t.Fatalf("%d are remembered", len(c.next))
		}
		for id, ms := range all {
			if got := c.expired.Contains(uint32(id)); got != (ms <= 100) {
				t.Fatalf("series %d, which expires at %d, has expired: %v", id, ms, got)
			}
			if ms > 100 && ms < c.allMS && !kept[model.SeriesNumber(id)] {
				t.Fatalf("series %d, which expires at %d, is forgotten although all before %d are known", id, ms, c.allMS)
			}
		}
	})
}

// fileOf writes a file in which each series has samples of the first two seconds of 1970 in a chunk
// each, with these times to live in seconds; 0 is for ever.
func fileOf(t *testing.T, ttls ...[2]uint32) *blockfile.File {
	t.Helper()
	return fileFrom(t, 0, ttls...)
}

// fileFrom is fileOf for series that are numbered from first.
func fileFrom(t *testing.T, first model.SeriesNumber, ttls ...[2]uint32) *blockfile.File {
	t.Helper()
	fs := vfs.NewMem()
	w, err := blockfile.Create(fs, "f", chunk.Best, blockfile.Origin{Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	for id, both := range ttls {
		var c model.Columns
		for i, ttl := range both {
			c.AppendFixed(int64(i)*1000, 1, ttl)
		}
		for i := range both {
			if err := w.Add(first+model.SeriesNumber(id), model.Long, &c, i, i+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	f, err := blockfile.Open(fs, "f", 1, blockfile.NewCache(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// expire does what a store does with a file at a time, and returns the series that expired. scans
// counts the scans.
func expire(t *testing.T, s *Series, f *blockfile.File, nowMS int64, scans *int) []uint32 {
	t.Helper()
	ids := s.Take(nowMS)
	if s.MustScan(f, nowMS) {
		*scans++
		if err := s.Scan(context.Background(), f, nowMS, ids); err != nil {
			t.Fatal(err)
		}
	}
	s.Note(ids)
	return ids.ToArray()
}

// TestSeries: a series expires with the last of its samples, once, and one scan finds all of them.
func TestSeries(t *testing.T) {
	f := fileOf(t, [2]uint32{30, 10}, [2]uint32{}, [2]uint32{10, 20}, [2]uint32{10, 0}, [2]uint32{1, 19})
	var s Series
	scans := 0
	for _, c := range []struct {
		nowMS   int64
		expired []uint32
		scans   int
		dueMS   int64
		rest    int
	}{
		{19_999, nil, 0, 20_000, 5},
		{20_000, []uint32{4}, 1, 21_000, 4},
		{20_999, nil, 1, 21_000, 4},
		{21_000, []uint32{2}, 1, 30_000, 3},
		{30_000, []uint32{0}, 1, math.MaxInt64, 2},
		{math.MaxInt64 - 1, nil, 1, math.MaxInt64, 2},
	} {
		got := expire(t, &s, f, c.nowMS, &scans)
		if !slices.Equal(got, c.expired) || scans != c.scans || s.DueMS(f) != c.dueMS {
			t.Errorf("at %d series %v expire after %d scans, the next at %d; want %v after %d scans, and %d", c.nowMS, got, scans, s.DueMS(f), c.expired, c.scans, c.dueMS)
		}
		if n := s.Rest(f).GetCardinality(); n != uint64(c.rest) {
			t.Errorf("at %d %d series are left, want %d", c.nowMS, n, c.rest)
		}
	}
	for id, want := range []bool{true, false, true, false, true} {
		if s.Expired(model.SeriesNumber(id)) != want || s.Rest(f).Contains(uint32(id)) == want {
			t.Errorf("series %d has expired: %v", id, !want)
		}
	}
	if n := f.Series.GetCardinality(); n != 5 {
		t.Errorf("the file is left with %d series", n)
	}
}

// TestOnlySeriesOfFile: a scan finds no series that the file does not have.
func TestOnlySeriesOfFile(t *testing.T) {
	f := fileFrom(t, 3, [2]uint32{1, 1}, [2]uint32{1, 1}, [2]uint32{30, 30})
	var s Series
	scans := 0
	if got, want := expire(t, &s, f, 2000, &scans), []uint32{3, 4}; !slices.Equal(got, want) {
		t.Errorf("series %v expire, want %v", got, want)
	}
}

// TestScanAgain: a scan that is needed because the last one remembered too few does not return what
// has expired before.
func TestScanAgain(t *testing.T) {
	ttls := make([][2]uint32, Kept+2)
	for id := range ttls {
		ttls[id] = [2]uint32{1, uint32(id) + 10}
	}
	f := fileOf(t, ttls...)
	var s Series
	scans, next := 0, uint32(0)
	for now := int64(11_000); next < uint32(len(ttls)); now += 500_000 {
		for _, id := range expire(t, &s, f, now, &scans) {
			if id != next || int64(id) > (now-11_000)/1000 {
				t.Fatalf("series %d expires at %d, want %d", id, now, next)
			}
			next++
		}
		if next != min(uint32(len(ttls)), uint32((now-11_000)/1000)+1) {
			t.Fatalf("at %d only %d series have expired", now, next)
		}
	}
	if scans != 2 {
		t.Errorf("%d scans of %d series, want 2", scans, len(ttls))
	}
	if !s.Rest(f).IsEmpty() || s.DueMS(f) != math.MaxInt64 {
		t.Errorf("%d series are left, the next expires at %d", s.Rest(f).GetCardinality(), s.DueMS(f))
	}
}

// TestOldFile: a file of a build that did not store when its first series expires is never scanned.
func TestOldFile(t *testing.T) {
	f := fileOf(t, [2]uint32{1, 1})
	f.SeriesExpireMS = 0
	var s Series
	if due, scan := s.DueMS(f), s.MustScan(f, math.MaxInt64-1); due != math.MaxInt64 || scan {
		t.Errorf("due at %d, scan: %v", due, scan)
	}
}

// TestScanFails: earlier findings stay known.
func TestScanFails(t *testing.T) {
	f := fileOf(t, [2]uint32{1, 1})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var s Series
	ids := roaring.New()
	if err := s.Scan(ctx, f, 5000, ids); err == nil || !ids.IsEmpty() || s.DueMS(f) != 2000 || !s.MustScan(f, 2000) {
		t.Errorf("a cancelled scan: %v, expired %v, due at %d", err, ids, s.DueMS(f))
	}
}

// TestAllowance: a burst, then the rate; what a large file takes beyond is deducted later.
func TestAllowance(t *testing.T) {
	start := time.Unix(1e9, 0)
	var a Allowance
	for _, c := range []struct {
		at    time.Duration
		bytes int64
		want  bool
	}{
		{0, Burst - 1, true},
		{0, 1, true},
		{0, 1, false},
		{time.Second, 3 * Rate, true},
		{2 * time.Second, 1, false},
		{3 * time.Second, 1, false},
		{2 * time.Second, 1, false},             // a clock that goes back gives nothing
		{3*time.Second + 500e6, 2 * Rate, true}, // 1.5 s since then
		{3*time.Second + 500e6, 1, false},
		{10 * time.Hour, Burst, true},
		{10 * time.Hour, 1, false},
	} {
		if got := a.Take(start.Add(c.at), c.bytes); got != c.want {
			t.Errorf("%d bytes after %v: %v", c.bytes, c.at, got)
		}
	}
}
