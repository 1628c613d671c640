package spool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tinyConfig makes everything happen often.
func tinyConfig() Config {
	cfg := DefaultConfig()
	cfg.Linger = time.Millisecond
	cfg.GenerationBytes = 64 * units.KiB
	cfg.GenerationSamples = 500
	cfg.MaxMemory = 128 * units.KiB
	cfg.MinFreeBytes = 0
	cfg.Log.SegmentBytes = 8 * units.KiB
	return cfg
}

func quickRetries(o Options) Options {
	o.retryFirst, o.retryMost = time.Millisecond, 4*time.Millisecond
	return o
}

// A cell is what a remote store keeps of a series and time.
type cell struct {
	value   string
	stampMS int64
}

// remote is a remote store in memory that keeps, as Cassandra does, the cell
// with the greatest write timestamp.
type remote struct {
	mu     sync.Mutex
	cells  map[string]map[int64]cell // series key, ms
	fail   func() error              // nil = never
	gate   chan struct{}             // nil = open; else each Write takes one token
	writes []int64                   // stamps of the writes that succeeded
	last   int64                     // stamp of the last attempt
	wrong  error

	tombstone int64 // cells up to this stamp are deleted
}

var errDown = errors.New("the remote store is down")

func newRemote() *remote { return &remote{cells: map[string]map[int64]cell{}} }

func (r *remote) Write(ctx context.Context, g *Generation) error {
	if r.gate != nil {
		select {
		case <-r.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last, g.StampMS())
	var half error
	if r.fail != nil {
		half = r.fail()
	}
	n := 0
	for id := range g.Series() {
		if n++; half != nil && n%2 == 0 {
			return half // in the middle
		}
		if err := r.writeSeries(g, id); err != nil {
			return err
		}
	}
	if half == nil {
		r.writes = append(r.writes, g.StampMS())
	}
	return half
}

func (r *remote) writeSeries(g *Generation, id model.SeriesNumber) error {
	series, ok := g.SeriesOf(id)
	if !ok {
		return fmt.Errorf("series %d is not known", id)
	}
	run := head.Run{Stamps: true}
	if ok, err := g.Snapshot(id, model.AllTime, &run); !ok || err != nil {
		return fmt.Errorf("snapshot of %v: %v, %w", series, ok, err)
	}
	key := string(series.AppendKey(nil))
	if r.cells[key] == nil {
		r.cells[key] = map[int64]cell{}
	}
	return eachSample(&run, func(ms int64, value string, stampMS int64) {
		if stampMS = min(stampMS, g.StampMS()); stampMS == 0 {
			stampMS = g.StampMS()
		}
		if old, ok := r.cells[key][ms]; stampMS > r.tombstone && (!ok || old.stampMS <= stampMS) {
			r.cells[key][ms] = cell{value, stampMS}
		}
	})
}

// eachSample calls fn for all samples of a run, with their stamps or 0.
func eachSample(run *head.Run, fn func(ms int64, value string, stampMS int64)) error {
	var all model.Columns
	for _, f := range run.Fragments {
		if err := run.Decode(f, &all); err != nil {
			return err
		}
	}
	for i := range run.Open.Times {
		all.AppendFrom(run.Kind, &run.Open, i)
	}
	for i, ms := range all.Times {
		value := fmt.Sprintf("/%d", all.TTL(i))
		switch {
		case run.Kind.Fixed():
			value = fmt.Sprint(all.Values[i]) + value
		case run.Kind.Variable():
			value = string(all.Bytes(i)) + value
		}
		var stampMS int64
		if len(all.Stamps) > 0 {
			stampMS = all.Stamps[i]
		}
		fn(ms, value, stampMS)
	}
	return nil
}

// content is series and time to value.
type content map[string]map[int64]string

func (c content) set(key string, ms int64, value string) {
	if c[key] == nil {
		c[key] = map[int64]string{}
	}
	c[key][ms] = value
}

// written returns the stamps of the writes that succeeded. The spool drains on a
// goroutine of its own: a test reads what the sink has by methods, never a field.
func (r *remote) written() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

func (r *remote) lastStamp() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// content returns what the remote store has.
func (r *remote) content() content {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := content{}
	for key, cells := range r.cells {
		for ms, cell := range cells {
			c.set(key, ms, cell.value)
		}
	}
	return c
}

// overlay puts what a view sees over c.
func (c content) overlay(t testing.TB, v *View, metrics ...string) {
	t.Helper()
	for _, metric := range metrics {
		ids, err := idsOf(v.Select(context.Background(), metric, nil, model.AllTime, nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			series, ok := v.SeriesOf(id)
			if !ok {
				t.Fatalf("series %d is not known", id)
			}
			for run, err := range v.Runs(id, model.AllTime, false, nil) {
				if err != nil {
					t.Fatal(err)
				}
				if err := eachSample(run, func(ms int64, value string, _ int64) { c.set(string(series.AppendKey(nil)), ms, value) }); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func (c content) diff(want content) error {
	for key, cells := range want {
		for _, ms := range slices.Sorted(maps.Keys(cells)) {
			if got, ok := c[key][ms]; !ok || got != cells[ms] {
				return fmt.Errorf("series %q at %d: %q (%v), want %q", key, ms, got, ok, cells[ms])
			}
		}
	}
	for key, cells := range c {
		for ms, value := range cells {
			if _, ok := want[key][ms]; !ok {
				return fmt.Errorf("series %q at %d: %q was never written", key, ms, value)
			}
		}
	}
	return nil
}

func mustOpen(t testing.TB, fs vfs.FS, cfg Config, o Options) *Spool {
	t.Helper()
	s, err := Open(fs, "spool", cfg, quickRetries(o))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testSeries(metric string, n int) model.Series {
	return model.Series{Metric: metric, Type: model.TypeLong, Tags: model.MustTags("n", fmt.Sprint(n))}
}

// put appends value at each of the times to a series.
func put(t testing.TB, s *Spool, series model.Series, value int64, times ...int64) {
	t.Helper()
	if err := tryPut(s, series, value, times...); err != nil {
		t.Fatal(err)
	}
}

// putAll appends value at each of the times to several series, in one batch.
func putAll(t testing.TB, s *Spool, all []model.Series, value int64, times ...int64) {
	t.Helper()
	if err := tryPutAll(s, all, value, times...); err != nil {
		t.Fatal(err)
	}
}

func tryPut(s *Spool, series model.Series, value int64, times ...int64) error {
	return tryPutAll(s, []model.Series{series}, value, times...)
}

func tryPutAll(s *Spool, all []model.Series, value int64, times ...int64) error {
	for {
		var b store.Batch
		b.Reset(s.Epoch())
		for _, series := range all {
			ref, err := s.Create(context.Background(), series)
			if err != nil {
				return err
			}
			for _, ms := range times {
				b.AddLong(ref, ms, value, 0)
			}
		}
		if err := s.Append(context.Background(), &b); !errors.Is(err, store.ErrStale) {
			return err
		}
	}
}

// within is a context that ends before a test would hang.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (r *remote) check(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong != nil {
		t.Error(r.wrong)
	}
}

func longText(v int64) string { return fmt.Sprintf("%d/0", v) }

var errNoSpace = fmt.Errorf("write: %w", syscall.ENOSPC)

// idsOf turns what View.Select returns into a list.
func idsOf(ids *roaring.Bitmap, err error) ([]model.SeriesNumber, error) {
	var list []model.SeriesNumber
	if err != nil {
		return nil, err
	}
	for it := ids.Iterator(); it.HasNext(); {
		list = append(list, model.SeriesNumber(it.Next()))
	}
	return list, nil
}

// runsOf returns how many samples each run of a view has.
func runsOf(v *View, id model.SeriesNumber, r model.TimeRange, hold func(int64) error) (counts []int, err error) {
	for run, err := range v.Runs(id, r, false, hold) {
		if err != nil {
			return counts, err
		}
		var all model.Columns
		if err := run.DecodeAll(&all); err != nil {
			return counts, err
		}
		counts = append(counts, all.Len())
	}
	return counts, nil
}
