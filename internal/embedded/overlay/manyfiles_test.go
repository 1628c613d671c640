package overlay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/blockfile"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

// TestManyFiles: series of more files than a cursor keeps iterators of are read whole, one after the other, in
// any order of the series.
func TestManyFiles(t *testing.T) {
	w := newWorld(t, 1)
	const files, ofBoth = 3 * maxKept, 2*maxKept + 3
	for n := range int64(files) {
		w.layers.Files = append(w.layers.Files, w.file(0, func(id model.SeriesNumber) *model.Columns {
			var c model.Columns
			if id > 1 || id == 0 && n >= ofBoth || id == 1 && n < ofBoth && n%3 != 1 {
				return &c // one has files that the other has not, and more than maxKept
			}
			ms := n*1000 + int64(id)
			if id == 0 {
				c.AppendFixed(ms, math.Float64bits(float64(n)), 0)
			} else {
				c.AppendFixed(ms, uint64(n), 0)
			}
			w.want[id][ms] = sampleAt(kinds[id], &c, 0)
			return &c
		})...)
	}
	for _, id := range []model.SeriesNumber{0, 1, 0, 0, 1, 1, 0} {
		for _, descending := range []bool{false, true} {
			var want []sample
			for _, s := range w.want[id] {
				want = append(want, s)
			}
			slices.SortFunc(want, func(a, b sample) int { return cmp.Compare(a.ms, b.ms) })
			if descending {
				slices.Reverse(want)
			}
			o := store.ReadOptions{Range: model.AllTime, Descending: descending}
			c := w.pool.Read(t.Context(), &w.layers, 0, id, kinds[id], o)
			if err := compare(c, kinds[id], o, want); err != nil {
				t.Fatalf("series %d, descending %t: %v", id, descending, err)
			}
			if c.Close(); len(c.kept) > maxKept+files {
				t.Fatalf("a cursor keeps %d iterators", len(c.kept))
			}
		}
	}
}

// TestUnreadableBehindDeleted: a chunk of which no sample is wanted is passed over. If the chunk behind it cannot be read
// then, that is an error, and not the end of the series.
func TestUnreadableBehindDeleted(t *testing.T) {
	w := newWorld(t, 1)
	var broken atomic.Bool
	var reads atomic.Int64
	w.cache = blockfile.NewCache(0)
	w.fs = errorfs.Wrap(w.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && broken.Load() && reads.Add(1) > 1 {
			return errorfs.ErrInjected
		}
		return nil
	}))
	w.rng = nil // the file is made here, chunk by chunk
	const id = 2
	out, err := blockfile.Create(w.fs, "file", 0, blockfile.Origin{Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	for chunk, times := range [][]int64{{0, 5000}, {6000, 7000}} {
		var c model.Columns
		for _, ms := range times {
			c.AppendBytes(ms, []byte(strings.Repeat(fmt.Sprint(chunk, ms), 20_000)), 0) // each chunk has a page of its own
		}
		if err := out.Add(id, model.String, &c, 0, c.Len()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := out.Finish(); err != nil {
		t.Fatal(err)
	}
	f, err := blockfile.Open(w.fs, "file", 1, w.cache)
	if err != nil {
		t.Fatal(err)
	}
	if f.Pages() < 2 {
		t.Fatalf("the file has %d pages", f.Pages())
	}
	w.layers.Files = []*blockfile.File{f}
	w.hiding = []*record.Deletion{{Sequence: 9, Range: model.TimeRange{StartMS: 4000, EndMS: 5500}, IDs: roaring.BitmapOf(id)}}
	var told error
	w.layers.Failed = func(err error) { told = err }
	o := store.ReadOptions{Range: model.TimeRange{StartMS: 1000, EndMS: 6500}}
	read := func() (times []int64, err error) {
		w.pool = Pool{}
		c := w.pool.Read(t.Context(), &w.layers, 0, id, model.String, o)
		defer c.Close()
		for {
			b, err := c.Next()
			if b == nil || err != nil {
				return times, err
			}
			times = append(times, b.Times...)
		}
	}
	if times, err := read(); err != nil || !slices.Equal(times, []int64{6000}) {
		t.Errorf("%v, %v", times, err)
	}
	broken.Store(true)
	if times, err := read(); !errors.Is(err, errorfs.ErrInjected) || !errors.Is(told, errorfs.ErrInjected) {
		t.Errorf("%v, %v, told %v", times, err, told)
	}
}

// chunks makes w's only file: so many chunks of one series, a sample each second.
func (w *world) chunks(id model.SeriesNumber, n int) {
	w.t.Helper()
	out, err := blockfile.Create(w.fs, "file", 0, blockfile.Origin{Sequence: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range int64(n) {
		var c model.Columns
		for ms := range int64(10) {
			c.AppendFixed(10_000*i+1000*ms, uint64(ms*ms), 0)
		}
		if err := out.Add(id, model.Long, &c, 0, c.Len()); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := out.Finish(); err != nil {
		w.t.Fatal(err)
	}
	f, err := blockfile.Open(w.fs, "file", 1, w.cache)
	if err != nil {
		w.t.Fatal(err)
	}
	w.layers.Files = []*blockfile.File{f}
}

// TestUndecodableChunk: a chunk that cannot be decoded ends a cursor with the place of the damage,
// whether its samples or their statistics are wanted.
func TestUndecodableChunk(t *testing.T) {
	const id = 1
	for _, summarize := range []*store.Summary{nil, {Final: func(ms int64) int64 { return ms/30_000*30_000 + 29_999 }, Needs: model.AllStats}} {
		for bad := range 3 {
			w := newWorld(t, 1)
			w.chunks(id, 3)
			var told error
			w.layers.Failed = func(err error) { told = err }
			c := w.pool.Read(t.Context(), &w.layers, 0, id, model.Long, store.ReadOptions{Range: model.TimeRange{StartMS: 1000, EndMS: 28_000}, Summarize: summarize})
			c.started = true
			if err := c.open(); err != nil {
				t.Fatal(err)
			}
			src := c.sources[0]
			for range bad {
				if err := c.load(src); err != nil {
					t.Fatal(err)
				}
			}
			src.entry.Kind = model.String // numbers are no strings
			var corruption *store.CorruptionError
			if b, err := c.Next(); !errors.As(err, &corruption) || corruption.File != "file" || told == nil {
				t.Errorf("summarized %t, chunk %d: %v, %v, told %v", summarize != nil, bad, b, err, told)
			}
			c.Close()
		}
	}
}

// TestCancelledAmongDeleted: a reader that has gone is noticed among chunks of which nothing is left.
func TestCancelledAmongDeleted(t *testing.T) {
	const id = 1
	w := newWorld(t, 1)
	w.chunks(id, 1000)
	w.hiding = []*record.Deletion{{Sequence: 9, Range: model.AllTime, IDs: roaring.BitmapOf(id)}}
	ctx, cancel := context.WithCancel(t.Context())
	w.layers.Failed = func(error) {}
	c := w.pool.Read(ctx, &w.layers, 0, id, model.Long, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	cancel()
	c.started = true
	if err := c.open(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
