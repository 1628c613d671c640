package buckets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
)

// A rawCursor yields samples, a few at a time.
type rawCursor struct {
	kind    model.Kind
	samples []modelSample
	block   store.Block
	size    int
	err     error // after the samples
	closed  *int
}

type modelSample struct {
	ms    int64
	value float64
}

func (c *rawCursor) Next() (*store.Block, error) {
	if len(c.samples) == 0 {
		return nil, c.err
	}
	n := min(c.size, len(c.samples))
	c.block.Reset()
	for _, s := range c.samples[:n] {
		c.block.AppendFixed(s.ms, bitsOf(c.kind, s.value), 0)
	}
	c.samples = c.samples[n:]
	return &c.block, nil
}

func (c *rawCursor) Close() { *c.closed++ }

func bitsOf(kind model.Kind, v float64) uint64 {
	if kind == model.Double {
		return math.Float64bits(v)
	}
	return uint64(int64(v))
}

// A world is what a cursor reads from.
type world struct {
	kind    model.Kind
	samples []modelSample // by time
	files   []modelFile
	lastMS  int64
}

type modelFile struct {
	file      *blockfile.File
	stepMS    int64
	buckets   []store.Bucket
	deletions []model.TimeRange
}

// modelSeries is the series that is read. Each file has buckets of its neighbours too.
const modelSeries = 7

func drawWorld(t *rapid.T) *world {
	w := &world{kind: rapid.SampledFrom([]model.Kind{model.Long, model.Double}).Draw(t, "kind"), lastMS: math.MinInt64}
	value := func() float64 { return float64(rapid.IntRange(-9, 9).Draw(t, "value")) }
	fs := vfs.NewMem()
	for n := range rapid.Int64Range(1, 3).Draw(t, "files") {
		f := modelFile{stepMS: rapid.SampledFrom([]int64{1000, 2000, 4000}).Draw(t, "step")}
		from, every := rapid.Int64Range(-5, 20).Draw(t, "from"), rapid.Int64Range(1, 3).Draw(t, "every")
		count := rapid.SampledFrom([]int64{1, 2, 10, 150, 2000}).Draw(t, "buckets")
		v := value()
		for i := range count {
			b := store.Bucket{StartMS: (from + i*every) * f.stepMS, StepMS: f.stepMS}
			for j := range 1 + (i+from+9)%3 {
				b.Add(b.StartMS+100*j+1+n, v+float64(j)*2-float64(i%5)) // none twice: see Reader.add
			}
			f.buckets = append(f.buckets, b)
		}
		for range rapid.IntRange(0, 2).Draw(t, "deletions") {
			at := rapid.Int64Range(-5, 40).Draw(t, "deleted from") * 1000
			f.deletions = append(f.deletions, model.TimeRange{StartMS: at, EndMS: at + rapid.Int64Range(0, 9000).Draw(t, "deleted for")})
		}
		f.file = writeBuckets(t, fs, fmt.Sprint(n), f.stepMS, f.buckets)
		w.lastMS = max(w.lastMS, f.file.MaxMS)
		w.files = append(w.files, f)
	}
	beside := rapid.OneOf(rapid.SampledFrom([]int64{0, 1, 999}), rapid.Int64Range(0, 999)) // the beginning of a bucket
	from := 1000*rapid.Int64Range(-8, 29).Draw(t, "samples from") + beside.Draw(t, "beside")
	every := rapid.SampledFrom([]int64{1, 100, 500, 999, 1000, 3000}).Draw(t, "sample every")
	for i := range rapid.SampledFrom([]int64{0, 1, 3, 20, 1500}).Draw(t, "samples") {
		w.samples = append(w.samples, modelSample{from + i*every, float64(i % 13)})
	}
	return w
}

// A test is one of testing or of rapid.
type test interface {
	rapid.TB
	Cleanup(func())
}

func writeBuckets(t test, fs vfs.FS, path string, stepMS int64, all []store.Bucket) *blockfile.File {
	w, err := blockfile.Create(fs, path, chunk.Best, blockfile.Origin{Sequence: 5, StepMS: stepMS})
	if err != nil {
		t.Fatal(err)
	}
	var c, other model.Columns
	other.AppendBytes(0, model.Aggregate{Sum: 1, Count: 1, Min: 1, Max: 1, Last: 1}.Append(nil), 0)
	for _, b := range all {
		c.AppendBytes(b.StartMS, b.Append(nil), 0)
	}
	add := func(series model.SeriesNumber, c *model.Columns) {
		for from := 0; from < c.Len(); from += 400 {
			if err := w.Add(series, model.AggregateKind, c, from, min(from+400, c.Len())); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(modelSeries-1, &other)
	add(modelSeries, &c)
	add(modelSeries+1, &other)
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	f, err := blockfile.Open(fs, path, 1, blockfile.NewCache(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// buckets are those that begin in a range, in order. Those of the same beginning and step are one.
func (w *world) buckets(within model.TimeRange) (all []store.Bucket) {
	for _, f := range w.files {
		for _, b := range f.buckets {
			if within.Contains(b.StartMS) && !slices.ContainsFunc(f.deletions, func(d model.TimeRange) bool {
				return d.StartMS <= b.StartMS && b.StartMS+b.StepMS-1 <= d.EndMS
			}) {
				all = append(all, b)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b store.Bucket) int {
		if a.StartMS != b.StartMS {
			return int(a.StartMS - b.StartMS)
		}
		return int(b.StepMS - a.StepMS)
	})
	var merged []store.Bucket
	for _, b := range all {
		if n := len(merged); n > 0 && merged[n-1].StartMS == b.StartMS && merged[n-1].StepMS == b.StepMS {
			merged[n-1].Merge(b.Aggregate)
		} else {
			merged = append(merged, b)
		}
	}
	return merged
}

// want is what a cursor has to yield, ascending: samples, and buckets in the place of samples.
func (w *world) want(o store.ReadOptions, p retention.Policy) (all []string) {
	buckets := w.buckets(o.Range)
	samples := slices.DeleteFunc(slices.Clone(w.samples), func(s modelSample) bool { return !o.Range.Contains(s.ms) })
	for len(buckets)+len(samples) > 0 {
		if len(buckets) == 0 || len(samples) > 0 && samples[0].ms < buckets[0].StartMS {
			all = append(all, fmt.Sprint(samples[0].ms, " ", samples[0].value))
			samples = samples[1:]
			continue
		}
		b := buckets[0]
		for buckets = buckets[1:]; len(buckets) > 0 && buckets[0].StartMS == b.StartMS; buckets = buckets[1:] {
			b.Merge(buckets[0].Aggregate)
		}
		if len(samples) > 0 && samples[0].ms == b.StartMS {
			b.Add(b.StartMS, samples[0].value)
			samples = samples[1:]
		}
		value := p.Aggregation.Method.Of(b.Aggregate, p.Expected(b.StepMS))
		last := b.Last
		if w.kind == model.Long {
			value = math.RoundToEven(value) + 0 // a whole number has no -0
		}
		if s := o.Summarize; s != nil && s.Needs&model.StatFirst == 0 && b.StartMS+b.StepMS-1 <= s.Final(b.StartMS) {
			all = append(all, fmt.Sprint(b.StartMS, " of ", b.Count, b.Min, b.Max, b.Sum, last, " at ", b.LastMS))
		} else {
			all = append(all, fmt.Sprint(b.StartMS, " ", value))
		}
	}
	return all
}

func (w *world) open(o store.ReadOptions, p retention.Policy, size int, closed *int, failure error) *Cursor {
	q := Query{
		Context: context.Background(), Series: modelSeries, Kind: w.kind, Policy: p, Options: o, LastMS: w.lastMS,
		Failed: func(error) {},
		Samples: func(o store.ReadOptions) store.Cursor {
			samples := slices.DeleteFunc(slices.Clone(w.samples), func(s modelSample) bool { return !o.Range.Contains(s.ms) })
			if o.Descending {
				slices.Reverse(samples)
			}
			if o.Limit > 0 {
				samples = samples[:min(o.Limit, len(samples))]
			}
			*closed--
			return &rawCursor{kind: w.kind, samples: samples, size: size, closed: closed, err: failure}
		},
	}
	for _, f := range w.files {
		q.Sources = append(q.Sources, &Source{Iter: f.file.Iter(false), StepMS: f.stepMS, Deletions: f.deletions})
	}
	return NewCursor(q)
}

// read reads a cursor to its end, in the form of want.
func (w *world) read(t rapid.TB, c *Cursor) (got []string) {
	t.Helper()
	for {
		b, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return got
		}
		before := len(got)
		if b.Buckets != nil {
			for i := range b.Buckets.Len() {
				one := b.Buckets.At(i)
				got = append(got, fmt.Sprint(one.StartMS, one.StepMS, one.Aggregate))
			}
		} else if b.Stats != nil {
			for _, s := range b.Stats {
				got = append(got, fmt.Sprint(s.FirstMS, " of ", s.Count, s.Min, s.Max, s.Sum, model.Float(w.kind, s.Last), " at ", s.LastMS))
			}
		} else {
			for i, ms := range b.Times {
				got = append(got, fmt.Sprint(ms, " ", model.Float(w.kind, b.Values[i])))
			}
		}
		if n := len(got) - before; n == 0 || n > 2000 {
			t.Fatalf("a block of %d", n)
		}
	}
}

// TestBucketsAcrossIntervals: where some buckets lie within the intervals of a query and others
// across their borders, none is lost between the two forms.
func TestBucketsAcrossIntervals(t *testing.T) {
	const step, span = 2000, 3000 // two of three buckets lie within
	w := &world{kind: model.Double}
	f := modelFile{stepMS: step}
	for i := range int64(20) {
		b := store.Bucket{StartMS: i * step, StepMS: step}
		b.Add(b.StartMS+1, float64(i))
		f.buckets = append(f.buckets, b)
	}
	f.file = writeBuckets(t, vfs.NewMem(), "file", step, f.buckets)
	w.files, w.lastMS = []modelFile{f}, f.file.MaxMS
	p := retention.Policy{Aggregation: &retention.Aggregation{Method: retention.Sum}}
	for _, descending := range []bool{false, true} {
		o := store.ReadOptions{Range: model.AllTime, Descending: descending, Summarize: &store.Summary{
			Needs: model.StatSum,
			Final: func(ms int64) int64 { return ms - ms%span + span - 1 },
		}}
		want := w.want(o, p)
		if descending {
			slices.Reverse(want)
		}
		closed := 0
		c := w.open(o, p, 100, &closed, nil)
		if got := w.read(t, c); !slices.Equal(got, want) {
			t.Errorf("descending %t: %q, want %q", descending, got, want)
		}
		c.Close()
	}
}

// TestCursorAgainstModel reads series of which some samples are in buckets, of several files
// and steps, and some beside, between and behind these.
func TestCursorAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := retention.Policy{Aggregation: &retention.Aggregation{Method: rapid.SampledFrom([]retention.Method{retention.Sum, retention.Average, retention.Last, retention.Max, retention.Min}).Draw(t, "method")}}
		from := rapid.Int64Range(-10_000, 60_000).Draw(t, "range from")
		o := store.ReadOptions{Range: model.TimeRange{StartMS: from, EndMS: from + rapid.Int64Range(0, 100_000).Draw(t, "range")}}
		if rapid.Bool().Draw(t, "all time") {
			o.Range = model.AllTime
		}
		o.Descending = rapid.Bool().Draw(t, "descending")
		var stages store.StageLog
		o.Stages = &stages
		switch rapid.SampledFrom([]string{"samples", "limit", "statistics", "buckets"}).Draw(t, "mode") {
		case "limit":
			o.Limit = rapid.IntRange(1, 1100).Draw(t, "limit")
		case "statistics":
			span := rapid.SampledFrom([]int64{500, 3000, 4000, 16_000}).Draw(t, "span")
			o.Summarize = &store.Summary{
				Needs: rapid.SampledFrom([]model.StatSet{model.StatSum, model.StatSum | model.StatFirst}).Draw(t, "needs"),
				Final: func(ms int64) int64 { return ms - (ms%span+span)%span + span - 1 },
			}
		case "buckets":
			o.Buckets, o.Needs = store.BucketsOnly, model.AllStats
		}
		var want []string
		if o.Buckets == store.BucketsOnly {
			for _, b := range w.buckets(o.Range) {
				want = append(want, fmt.Sprint(b.StartMS, b.StepMS, b.Aggregate))
			}
			if o.Descending { // also then the wider one of a time comes first
				slices.Reverse(want)
				all := w.buckets(o.Range)
				slices.SortStableFunc(all, func(a, b store.Bucket) int { return int(b.StartMS - a.StartMS) })
				want = want[:0]
				for _, b := range all {
					want = append(want, fmt.Sprint(b.StartMS, b.StepMS, b.Aggregate))
				}
			}
		} else {
			if want = w.want(o, p); o.Descending {
				slices.Reverse(want)
			}
			if o.Limit > 0 {
				want = want[:min(o.Limit, len(want))]
			}
		}

		open := 0
		c := w.open(o, p, rapid.SampledFrom([]int{1, 7, 2000}).Draw(t, "block"), &open, nil)
		got := w.read(t, c)
		if !slices.Equal(got, want) {
			i := 0
			for i < min(len(got), len(want)) && got[i] == want[i] {
				i++
			}
			t.Fatalf("%d read, want %d; from %d on %.5q, want %.5q", len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
		}
		if o.Limit == 0 {
			read, there := map[int64]int64{}, map[int64]int64{}
			for _, u := range stages.Used() {
				read[u.StepMS] = u.Count
			}
			for _, b := range w.buckets(o.Range) {
				there[b.StepMS]++
			}
			if fmt.Sprint(read) != fmt.Sprint(there) {
				t.Fatalf("stages of %v buckets are told, %v were read", read, there)
			}
		}
		c.Close()
		if _, err := c.Next(); !errors.Is(err, store.ErrClosed) {
			t.Fatalf("after it is closed: %v", err)
		}
		if c.Close(); open > 0 {
			t.Fatalf("samples were closed %d times too often", open)
		}
		if open < 0 {
			t.Fatalf("%d cursors over samples are left open", -open)
		}
	})
}

// TestFailedCursor: an error of the samples, before the end of the buckets or behind it, or of
// the client, ends a cursor permanently.
func TestFailedCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		failure := errors.New("the disk is gone")
		open, told := 0, 0
		p := retention.Policy{Aggregation: &retention.DefaultAggregation}
		c := w.open(store.ReadOptions{Range: model.AllTime, Descending: rapid.Bool().Draw(t, "descending")}, p, 100, &open, failure)
		c.q.Failed = func(err error) {
			if told++; err != failure {
				t.Fatalf("told of %v", err)
			}
		}
		var err error
		for b := (*store.Block)(nil); err == nil; b, err = c.Next() {
			if b != nil && b.Len() == 0 {
				t.Fatal("an empty block")
			}
		}
		if _, again := c.Next(); err != failure || again != failure || told != 1 {
			t.Fatalf("%v, then %v, told %d times", err, again, told)
		}
		c.Close()
		if open != 0 {
			t.Fatalf("%d cursors over samples are left open", -open)
		}

		ctx, leave := context.WithCancel(t.Context())
		leave()
		for _, mode := range []store.BucketMode{store.BucketsAsSamples, store.BucketsOnly} {
			c := w.open(store.ReadOptions{Range: model.TimeRange{StartMS: math.MinInt64, EndMS: w.lastMS}, Buckets: mode}, p, 100, &open, nil)
			c.q.Context = ctx
			b, err := c.Next()
			if err == nil && b != nil || err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("for a client that has left: %v, %v", b, err)
			}
			c.Close()
		}
	})
}
