package buckets

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/retention"
	"varve/internal/store"
)

// fileOf writes buckets of a second to a file. Their sketches are as given.
func fileOf(t *testing.T, name string, all ...model.Aggregate) *blockfile.File {
	t.Helper()
	fs := vfs.NewMem()
	w, err := blockfile.Create(fs, name, chunk.Best, blockfile.Origin{Sequence: 5, StepMS: 1000, Sketches: true})
	if err != nil {
		t.Fatal(err)
	}
	var c model.Columns
	for i, a := range all {
		c.AppendBytes(int64(i)*1000, a.Append(nil), 0)
	}
	if err := w.Add(modelSeries, model.AggregateKind, &c, 0, c.Len()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	f, err := blockfile.Open(fs, name, 1, blockfile.NewCache(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func of(ms int64, values ...float64) (a model.Aggregate) {
	for i, v := range values {
		a.Add(ms+int64(i), v)
	}
	a.Sketch = quantile.Of(values...)
	return a
}

func cursorOver(o store.ReadOptions, samples []modelSample, files ...*blockfile.File) *Cursor {
	q := Query{
		Context: context.Background(), Series: modelSeries, Kind: model.Double, Options: o, LastMS: 1 << 40, Failed: func(error) {},
		Policy:   retention.Policy{Aggregation: &retention.Aggregation{Method: retention.Sum}},
		Sketches: o.Sketches,
		Samples: func(o store.ReadOptions) store.Cursor {
			closed := 0
			within := slices.DeleteFunc(slices.Clone(samples), func(s modelSample) bool { return !o.Range.Contains(s.ms) })
			return &rawCursor{kind: model.Double, samples: within, size: 10, closed: &closed}
		},
	}
	for _, f := range files {
		q.Sources = append(q.Sources, &Source{Iter: f.Iter(false), StepMS: 1000})
	}
	return NewCursor(q)
}

// A reader that asks for sketches gets beside each value what it stands for: the bucket with the sketch
// of its samples, or nothing for a sample.
func TestSketchesBesideSamples(t *testing.T) {
	f := fileOf(t, "f", of(1, 1, 2, 3), of(1001, 10))
	samples := []modelSample{{1000, 7}, {2500, 5}} // the first one belongs to the second bucket
	c := cursorOver(store.ReadOptions{Range: model.AllTime, Sketches: true}, samples, f)
	defer c.Close()
	var got []string
	for {
		block, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if block == nil {
			break
		}
		if len(block.Aggregates) != len(block.Times) {
			t.Fatalf("%d aggregates of %d values", len(block.Aggregates), len(block.Times))
		}
		for i, ms := range block.Times {
			a := block.Aggregates[i]
			got = append(got, fmt.Sprintf("%d=%v of %d, %d in the sketch", ms, math.Float64frombits(block.Values[i]), a.Count, a.Sketch.Count()))
		}
	}
	want := "0=6 of 3, 3 in the sketch; 1000=17 of 2, 2 in the sketch; 2500=5 of 0, 0 in the sketch"
	if all := strings.Join(got, "; "); all != want {
		t.Errorf("%s, want %s", all, want)
	}
}

// A single sample that is sent again replaces the bucket that was folded of it.
func TestSampleSentAgainAtTheBeginningOfItsBucket(t *testing.T) {
	for name, tc := range map[string]struct {
		bucket model.Aggregate
		want   float64
	}{
		"the only one":             {of(0, 3), 8},
		"one of two":               {of(0, 3, 4), 15},
		"another one of the time ": {of(1, 3), 11},
	} {
		c := cursorOver(store.ReadOptions{Range: model.AllTime}, []modelSample{{0, 8}}, fileOf(t, "f", tc.bucket))
		block, err := c.Next()
		if err != nil || block == nil || block.Len() != 1 || math.Float64frombits(block.Values[0]) != tc.want {
			t.Errorf("%s: %+v, %v, want %v", name, block, err, tc.want)
		}
		c.Close()
	}
}

// Buckets with sketches are read one by one, and a sketch that cannot be read is damage of its file.
func TestSketchesAreRead(t *testing.T) {
	damaged := of(1001, 10, 11)
	damaged.Sketch = quantile.Of(1) // of another number of samples
	for name, second := range map[string]model.Aggregate{"right": of(1001, 10, 11), "damaged": damaged} {
		var failed error
		c := cursorOver(store.ReadOptions{Range: model.AllTime, Sketches: true, Buckets: store.BucketsOnly}, nil, fileOf(t, "f", of(1, 1, 2, 3), second))
		var sketches []int64
		for failed == nil {
			block, err := c.Next()
			if failed = err; block == nil {
				break
			}
			for i := range block.Buckets.Len() {
				sketches = append(sketches, block.Buckets.At(i).Sketch.Count())
			}
		}
		c.Close()
		if name == "right" && (failed != nil || fmt.Sprint(sketches) != "[3 2]") {
			t.Errorf("%v, %v", sketches, failed)
		}
		if name == "damaged" && (failed == nil || !strings.Contains(failed.Error(), "f")) {
			t.Errorf("a damaged sketch: %v, %v", sketches, failed)
		}
	}
}

// Steps are repeated once for each bucket, regardless of the steps before.
func TestRepeatedSteps(t *testing.T) {
	c := &Cursor{memory: &memory{}}
	for _, tc := range []struct {
		step int64
		n    int
		want string
	}{{1, 2, "[1 1]"}, {1, 3, "[1 1 1]"}, {1, 1, "[1]"}, {2, 2, "[2 2]"}, {2, 0, "[]"}, {1, 1, "[1]"}} {
		if got := fmt.Sprint(c.repeat(tc.step, tc.n)); got != tc.want {
			t.Errorf("%d, %d times: %s", tc.step, tc.n, got)
		}
	}
}

// Parts that are of the same samples as older ones take their place. The sketch of the older ones stays if it is of the
// same values: of a single sample that may have another value now, it is not.
func TestSketchOfPartsSentAgain(t *testing.T) {
	without := func(a model.Aggregate) model.Aggregate {
		a.Sketch = ""
		return a
	}
	for name, tc := range map[string]struct {
		old, newer model.Aggregate
		want       quantile.Sketch
	}{
		"of two samples, without a sketch":       {of(5, 3, 4), without(of(5, 3, 4)), quantile.Of(3, 4)},
		"of two samples, with one":               {of(5, 3, 4), of(5, 3, 4), quantile.Of(3, 4)},
		"of one that has changed, without one":   {of(5, 3), without(of(5, 8)), ""},
		"of one that has changed, with a sketch": {of(5, 3), of(5, 8), quantile.Of(8)},
	} {
		var r Reader
		r.add(tc.old)
		r.add(tc.newer)
		if len(r.parts) != 1 || r.parts[0].Sketch != tc.want || r.parts[0].Last != tc.newer.Last {
			t.Errorf("%s: %+v, want the sketch %q", name, r.parts, tc.want)
		}
	}
}

// A cursor that is closed twice gives its memory back once: two cursors after it have no memory in common.
func TestCursorClosedTwice(t *testing.T) {
	o := store.ReadOptions{Range: model.AllTime}
	c := cursorOver(o, nil, fileOf(t, "f", of(0, 1)))
	c.Close()
	c.Close()
	first, second := cursorOver(o, nil), cursorOver(o, nil)
	if first.memory == second.memory {
		t.Error("two cursors share their memory")
	}
	first.Close()
	second.Close()
	if _, err := c.Next(); err == nil {
		t.Error("a closed cursor goes on")
	}
}
