package buckets

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"varve/internal/blockfile"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
)

// TestEachReadThatFails: whichever read of whichever file fails, once or from then on, a cursor ends with that, and
// not as if all had been read.
func TestEachReadThatFails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var left atomic.Int64 // reads until one fails
		left.Store(1 << 40)
		once := rapid.Bool().Draw(t, "once")
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind != errorfs.OpFileReadAt {
				return nil
			}
			if n := left.Add(-1); n == -1 || n < 0 && !once {
				return errorfs.ErrInjected
			}
			return nil
		}))
		count := rapid.SampledFrom([]int{3, 300, 3000}).Draw(t, "buckets")
		apart := rapid.Int64Range(1, 2).Draw(t, "apart") // 1: one file after the other, 2: they take turns
		var files []*blockfile.File
		for i, path := range []string{"a", "b"} {
			var all []store.Bucket
			for n := range count {
				b := store.Bucket{StartMS: 1000 * (int64(n)*apart + int64(i)*(1+(2-apart)*int64(count))), StepMS: 1000}
				b.Add(b.StartMS+1, math.Sin(float64(n))) // needs many bytes, so that a file needs several reads
				all = append(all, b)
			}
			files = append(files, writeBuckets(t, fs, path, 1000, all))
		}
		o := store.ReadOptions{Range: model.AllTime, Descending: rapid.Bool().Draw(t, "descending")}
		if rapid.Bool().Draw(t, "only buckets") {
			o.Buckets, o.Needs = store.BucketsOnly, model.AllStats
		}
		read := func() error {
			q := Query{
				Context: context.Background(), Series: modelSeries, Kind: model.Double, Options: o, LastMS: files[1].MaxMS,
				Policy: retention.Policy{Aggregation: &retention.Aggregation{Method: retention.Sum}},
				Failed: func(error) {},
				Samples: func(store.ReadOptions) store.Cursor {
					return &rawCursor{kind: model.Double, closed: new(int)}
				},
			}
			for _, f := range files {
				q.Sources = append(q.Sources, &Source{Iter: f.Iter(false), StepMS: 1000})
			}
			c := NewCursor(q)
			defer c.Close()
			for {
				if b, err := c.Next(); err != nil || b == nil {
					return err
				}
			}
		}
		before := left.Load()
		if err := read(); err != nil {
			t.Fatal(err)
		}
		reads := before - left.Load()
		if count == 3000 && reads < 2*3 {
			t.Fatalf("only %d reads of two files of %d buckets", reads, count)
		}
		for n := range reads {
			left.Store(n)
			if err := read(); !errors.Is(err, errorfs.ErrInjected) {
				t.Fatalf("read %d of %d fails: %v", n+1, reads, err)
			}
		}
	})
}

// TestSamplesThatFail: if the samples beside the buckets cannot be read, a cursor ends with that, and not
// with the buckets alone.
func TestSamplesThatFail(t *testing.T) {
	broken := errors.New("broken")
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		o := store.ReadOptions{Range: model.TimeRange{StartMS: model.AllTime.StartMS, EndMS: w.lastMS}, Descending: rapid.Bool().Draw(t, "descending")}
		open := 0
		c := w.open(o, retention.Policy{Aggregation: &retention.Aggregation{Method: retention.Sum}}, rapid.SampledFrom([]int{1, 7, 2000}).Draw(t, "block"), &open, broken)
		defer c.Close()
		samples := c.q.Samples
		c.q.Samples = func(o store.ReadOptions) store.Cursor {
			raw := samples(o).(*rawCursor)
			if o.Range.StartMS > o.Range.EndMS { // the range after all buckets is empty
				raw.err = nil
			}
			return raw
		}
		for {
			b, err := c.Next()
			if err != nil {
				if !errors.Is(err, broken) {
					t.Fatal(err)
				}
				return
			}
			if b == nil {
				t.Fatal("a series without its samples ends as if all had been read")
			}
		}
	})
}
