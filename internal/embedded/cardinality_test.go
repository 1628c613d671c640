package embedded

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/growth"
	"varve/internal/model"
	"varve/internal/registry"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// churnSeries makes TestChurn a measurement: go test ./internal/embedded -run Churn -churn 50000 -v
var churnSeries = flag.Int("churn", 0, "series of each day in TestChurn")

// churnStore is a store whose clock and maintenance the test drives.
type churnStore struct {
	*Store
	t   testing.TB
	fs  vfs.FS
	now *storetest.Clock
	cfg Config
}

func newChurnStore(t testing.TB) *churnStore {
	now := storetest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	cfg := DefaultConfig()
	cfg.RowWidth = 24 * time.Hour
	cfg.MaintenanceInterval, cfg.CheckpointInterval = time.Hour, time.Hour
	c := &churnStore{t: t, fs: vfs.NewMem(), now: now, cfg: cfg}
	c.open()
	return c
}

func (c *churnStore) open() {
	c.t.Helper()
	var err error
	c.Store, err = Open(c.fs, "data", c.cfg, Options{Now: c.now.Now})
	if err != nil {
		c.t.Fatal(err)
	}
}

// put appends one sample, with a time-to-live, to each of the series of a day.
func (c *churnStore) put(day, series int, ttl time.Duration) {
	c.t.Helper()
	var b store.Batch
	for from := 0; from < series; {
		b.Reset(c.Epoch())
		to := min(from+5000, series)
		for i := from; i < to; i++ {
			ref, err := c.Create(context.Background(), model.Series{Metric: "requests", Type: model.TypeLong, Tags: model.MustTags(
				"pod", fmt.Sprintf("pod-%d-%d", day, i), "node", fmt.Sprintf("node-%d", i%100))})
			if err != nil {
				c.t.Fatal(err)
			}
			b.AddLong(ref, c.now.Now().UnixMilli()+int64(i%1000), int64(i), uint32(ttl/time.Second))
		}
		switch err := c.Append(context.Background(), &b); {
		case errors.Is(err, store.ErrStale): // the merger has forgotten some
		case err != nil:
			c.t.Fatal(err)
		default:
			from = to
		}
	}
}

// settle writes the head to files and drops what has expired.
func (c *churnStore) settle() {
	c.t.Helper()
	if err := c.checkpoint(); err != nil {
		c.t.Fatal(err)
	}
	if err := c.maintain(context.Background()); err != nil {
		c.t.Fatal(err)
	}
}

// found counts the series of a span of days.
func (c *churnStore) found(from, to int) int {
	c.t.Helper()
	v, err := c.View(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	defer v.Close()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	series, err := storetest.Select(context.Background(), v, store.Selection{Metric: "requests", Range: model.TimeRange{
		StartMS: start.AddDate(0, 0, from).UnixMilli(), EndMS: start.AddDate(0, 0, to).UnixMilli() - 1}})
	if err != nil {
		c.t.Fatal(err)
	}
	return len(series)
}

// TestChurn simulates a month in which each day has new series, which are gone
// three days later: memory is bounded by the number of live series.
func TestChurn(t *testing.T) {
	series, days := 2000, 30
	if *churnSeries > 0 {
		series = *churnSeries
	}
	const keep = 3 // days of a time-to-live
	c := newChurnStore(t)
	var peak int
	var most int64 // bytes of the index once as many series as ever are alive
	var heap []uint64
	for day := range days {
		c.put(day, series, keep*24*time.Hour)
		c.settle()
		if day > keep {
			if n := c.found(day, day+1); n != series {
				t.Fatalf("day %d has %d series, want %d", day, n, series)
			}
			if n := c.found(day-1, day); n != series {
				t.Fatalf("the day before %d has %d series, want %d", day, n, series)
			}
			if n := c.found(0, day-keep-1); n != 0 {
				t.Fatalf("day %d: %d series are left of days that have expired", day, n)
			}
		}
		peak = max(peak, c.SeriesCount())
		if day == keep+2 {
			most = c.index.Bytes()
		}
		if *churnSeries > 0 {
			heap = append(heap, heapBytes()>>20)
		}
		c.now.Advance(24 * time.Hour)
	}
	alive := (keep + 2) * series
	if peak > alive {
		t.Errorf("%d series at the peak, want at most %d", peak, alive)
	}
	if n, bytes := c.index.Len(), c.index.Bytes(); n > alive || bytes > most+most/20 {
		t.Errorf("the index holds %d series in %d bytes, after %d bytes on day %d", n, bytes, most, keep+2)
	}
	pages := c.series.Pages()
	if limit := alive/registry.PageSize + keep + 3; pages > limit {
		t.Errorf("the registry has %d pages, want at most %d", pages, limit)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.open()
	defer c.Close()
	t.Logf("%d series came and went, %d at the peak, %d files, opened in %v, MB at the end of each day %v",
		days*series, peak, c.Usage().Files, time.Since(began), heap)
	if got := c.SeriesCount(); got > alive {
		t.Errorf("%d series after opening, want at most %d", got, alive)
	}
	if id := c.series.NextID(); int(id) != days*series {
		t.Errorf("the next id is %d, want %d: ids are not given twice", id, days*series)
	}
}

// TestSeriesWithoutSamplesAreForgotten at the second checkpoint.
func TestSeriesWithoutSamplesAreForgotten(t *testing.T) {
	c := newChurnStore(t)
	defer c.Close()
	c.put(0, 10, 0)
	ref, err := c.Create(context.Background(), model.Series{Metric: "nothing", Type: model.TypeLong})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(c.Epoch())
	b.AddLong(ref, crashOrigin, 1, 0)
	c.settle()
	if c.SeriesCount() != 11 {
		t.Fatalf("%d series after one checkpoint", c.SeriesCount())
	}
	c.put(0, 10, 0)
	c.settle()
	if c.SeriesCount() != 10 {
		t.Fatalf("%d series after two checkpoints", c.SeriesCount())
	}
	if err := c.Append(context.Background(), &b); err != store.ErrStale {
		t.Fatalf("the ref of a forgotten series: %v, want ErrStale", err)
	}
}

// TestStoreCardinality: the reported cardinality is that of the stored series.
func TestStoreCardinality(t *testing.T) {
	c := newChurnStore(t)
	defer c.Close()
	c.put(1, 1000, 0)
	got := c.Cardinality("", 3)
	if got.Series != 1000 || got.CreatedRecent != 1000 || got.UnusedSeries != 0 || got.SeriesEverSeen != 1000 ||
		!slices.Equal(got.GrowthRecent, []growth.Metric{{Metric: "requests", Series: 1000}}) || got.TopTags[0].Tag != "pod" || got.TopPairs[0].Series != 10 {
		t.Errorf("%+v", got)
	}
	if m := c.LargestMetrics(5); !slices.Equal(m, []growth.Metric{{Metric: "requests", Series: 1000}}) {
		t.Errorf("largest: %v", m)
	}
	if m := c.FastestMetrics(5); !slices.Equal(m, []growth.Metric{{Metric: "requests", Series: 1000}}) {
		t.Errorf("fastest: %v", m)
	}
}
