package rollup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/ingest/ingesttest"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// putResult stores one sample next to the results of host a, as a client may.
func (b *breakable) putResult(t *testing.T, typ model.Type, ms int64) {
	t.Helper()
	ref, err := b.Create(t.Context(), model.Series{Metric: "dst", Tags: model.MustTags("host", "a", "saved_from", "src"), Type: typ})
	if err != nil {
		t.Fatal(err)
	}
	batch := store.Batch{Epoch: b.Epoch()}
	switch typ {
	case model.TypeLong:
		batch.AddLong(ref, ms, 1, 0)
	case model.TypeDouble:
		batch.AddDouble(ref, ms, 1, 0)
	default:
		batch.AddBytes(ref, ms, []byte("text"), 0)
	}
	if err := b.Append(t.Context(), &batch); err != nil {
		t.Fatal(err)
	}
}

// A bucket with more samples than were computed for it stays, wherever these samples
// are: in the bucket of another type, or next to it and not yet downsampled.
func TestDownsampledResultsBesideOthers(t *testing.T) {
	for _, typ := range []model.Type{model.TypeLong, model.TypeDouble} {
		for _, folded := range []bool{true, false} {
			h, b := downsampledHours(t, taskJSON("t", hour, minute, ""))
			b.putResult(t, typ, at(1, 0, 30))
			if folded {
				b.fold(t)
			}
			h.fillMinutes(1, 10, 40)
			wantHours(t, b, fmt.Sprintf("%s, downsampled: %t", typ, folded), "60/60 61/61 60/60")
			b.fold(t)
			wantHours(t, b, fmt.Sprintf("%s, all downsampled", typ), "60/60 61/61 60/60")
		}
	}
}

// A bucket is replaced in all its types.
func TestDownsampledResultsOfTwoTypes(t *testing.T) {
	h, b := newDownsampled(t)
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	h.send("src", "a", 1, at(1, 0, 0), at(1, 1, 0), at(1, 2, 0), at(1, 3, 0))
	h.fill("t", "03")
	if err := b.Delete(t.Context(), store.Deletion{Metric: "dst", Range: model.TimeRange{StartMS: at(1, 2, 0), EndMS: at(1, 3, 0)}}); err != nil {
		t.Fatal(err)
	}
	b.putResult(t, model.TypeDouble, at(1, 2, 0))
	b.putResult(t, model.TypeDouble, at(1, 3, 0))
	b.fold(t)
	wantHours(t, b, "before", "0/0 4/4 0/0")
	h.fillMinutes(1, 1, 1)
	wantHours(t, b, "after", "0/0 4/4 0/0")
}

// Texts are never downsampled, and prevent nothing.
func TestDownsampledResultsBesideTexts(t *testing.T) {
	h, b := newDownsampled(t)
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	b.putResult(t, model.TypeString, at(1, 0, 30))
	h.minutes(3)
	h.fill("t", "03")
	b.fold(t)
	h.send("src", "a", 7, at(1, 5, 10))
	h.fillMinutes(1, 5, 5)
	view, err := b.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	texts := 0
	for s, err := range view.Select(t.Context(), store.Selection{Metric: "dst", Range: model.AllTime}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Type == model.TypeString {
			texts++
		}
	}
	if texts != 1 {
		t.Errorf("%d series of texts are there, want 1", texts)
	}
}

// If all results of a bucket are more than a query may read, only the requested ones
// are computed, and the bucket stays.
func TestDownsampledResultsBeyondALimit(t *testing.T) {
	h, b := downsampledHours(t, taskJSON("t", hour, minute, ""))
	h.restart(func(_ *Config, q *query.Config) { q.MaxSamples = 30 })
	h.scheduler.Load(t.Context())
	h.send("src", "a", 7, at(1, 12, 10))
	h.fillMinutes(1, 10, 20)
	wantHours(t, b, "after", "60/60 60/60 60/60")
	if got := ingesttest.Counters(t, h.registry, "varve_rollup_results_kept_total")[""]; got != 11 {
		t.Errorf("%v results are counted as not stored, want 11", got)
	}
}

// Downsampled results are replaced even by more results than one flush holds.
func TestManyDownsampledResults(t *testing.T) {
	const first, results = 72, 6 * 1440 // a bucket begins on the fourth day
	h, b := newDownsampledBy(t, "60s:240h,240h:10y", func() time.Time { return time.UnixMilli(at(1000, 0, 0)) })
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	var times []int64
	for m := range results {
		times = append(times, at(first, m, 0))
	}
	h.send("src", "a", 1, times...)
	h.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=2000-01-04-00-00-00-000&endTime=2000-01-10-00-00-00-000", "")
	b.fold(t)
	h.send("src", "a", 7, at(first+1, 0, 10), at(first+141, 0, 10))
	stored := func() float64 { return valueOf(t, h.scheduler.metrics.points) }
	if got := stored(); got != results {
		t.Errorf("%v results were stored, want %d", got, results)
	}
	const again = "/api/v1/rollups/backfill/t?startTime=2000-01-04-01-00-00-000&endTime=2000-01-04-01-00-00-000"
	b.failing = 1 // the first flush of two
	h.do(500, "POST", again, "")
	if b.failing != 0 || h.scheduler.late.Count("", "") == 0 {
		t.Error("the first flush did not fail, or nothing says that its results are missing")
	}
	if err := h.scheduler.run(t.Context(), h.scheduler.mu.jobs["t"].task, func() bool { return true }, func(bool) time.Time { return time.Now() }); err != nil {
		t.Fatal(err)
	}
	b.fold(t)
	before := stored()
	h.do(204, "POST", again, "")
	if got := stored() - before; got != results {
		t.Errorf("%v results were stored again, want %d", got, results)
	}
	if sum, count := b.total(t); sum != results+14 || count != results {
		t.Errorf("dst has %v in %d results, want %d in %d", sum, count, results+14, results)
	}
	if got := ingesttest.Counters(t, h.registry, "varve_rollup_results_kept_total"); len(got) != 0 {
		t.Errorf("results were not stored: %v", got)
	}
}

// total returns the sum and the number of all results.
func (b *breakable) total(t *testing.T) (sum float64, count int64) {
	t.Helper()
	view, err := b.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	for s, err := range view.Select(t.Context(), store.Selection{Metric: "dst", Range: model.AllTime}) {
		if err != nil {
			t.Fatal(err)
		}
		cursor := view.Read(t.Context(), s, store.ReadOptions{Range: model.AllTime, Buckets: store.WithoutBuckets})
		for {
			block, err := cursor.Next()
			if err != nil {
				t.Fatal(err)
			}
			if block == nil {
				break
			}
			for _, bits := range block.Values {
				value := float64(int64(bits))
				if s.Type == model.TypeDouble {
					value = math.Float64frombits(bits)
				}
				sum, count = sum+value, count+1
			}
		}
		cursor.Close()
		cursor = view.Read(t.Context(), s, store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.StatSum})
		for {
			block, err := cursor.Next()
			if err != nil {
				t.Fatal(err)
			}
			if block == nil {
				break
			}
			for i := range block.Buckets.Len() {
				sum, count = sum+block.Buckets.At(i).Sum, count+block.Buckets.At(i).Count
			}
		}
		cursor.Close()
	}
	return sum, count
}

// A widening store downsamples results further before a view is opened.
type widening struct {
	*breakable
	left  int // views until then
	widen func()
}

func (w *widening) View(ctx context.Context) (store.View, error) {
	if w.left--; w.left == 0 {
		w.widen()
	}
	return w.breakable.View(ctx)
}

// Results that are downsampled to wider buckets while they are recomputed count once,
// whenever that happens.
func TestDownsampledFurtherMeanwhile(t *testing.T) {
	tries := 0
	for views := 1; ; views++ {
		var now atomic.Int64 // the store looks at the clock in the background too
		now.Store(at(24, 0, 0))
		h, b := newDownsampledBy(t, "60s:1h,1h:24h,24h:10y", func() time.Time { return time.UnixMilli(now.Load()) })
		w := &widening{breakable: b}
		h.front = w
		h.restart(nil)
		h.scheduler.Load(t.Context())
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
		h.minutes(24)
		h.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-02-00-00-00-000", "")
		b.fold(t)
		w.left, w.widen = views, func() { now.Store(at(1000, 0, 0)); b.fold(t) }
		answer := httptest.NewRecorder()
		h.mux.ServeHTTP(answer, httptest.NewRequest("POST", "/api/v1/rollups/backfill/t?startTime=2000-01-01-15-10-00-000&endTime=2000-01-01-15-20-00-000", nil))
		if w.left > 0 {
			break
		}
		if tries++; answer.Code != 204 && !strings.Contains(answer.Body.String(), errDownsampledMeanwhile.Error()) {
			t.Errorf("before view %d: the answer is %d %s", views, answer.Code, answer.Body)
		}
		h.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=2000-01-01-15-10-00-000&endTime=2000-01-01-15-20-00-000", "")
		b.fold(t)
		if sum, count := b.total(t); sum != 1440 || count != 1440 {
			t.Errorf("downsampled further before view %d: dst has %v in %d results, want 1440 in 1440", views, sum, count)
		}
	}
	if tries < 3 {
		t.Errorf("%d views were opened: the test does not reach what it is about", tries)
	}
}

// A folding store downsamples results just before it stores further ones.
type folding struct {
	*breakable
	before func()
}

func (f *folding) Append(ctx context.Context, batch *store.Batch) error {
	if before := f.before; before != nil {
		f.before = nil
		before()
	}
	return f.breakable.Append(ctx, batch)
}

// Results that are first downsampled after a run has looked for such results, and
// before it stores the same ones again, count once.
func TestDownsampledFirstMeanwhile(t *testing.T) {
	var now atomic.Int64 // the store looks at the clock in the background too
	now.Store(at(3, 0, 0))
	h, b := newDownsampledBy(t, "60s:20h,1h:10y", func() time.Time { return time.UnixMilli(now.Load()) })
	f := &folding{breakable: b}
	h.front = f
	h.restart(nil)
	h.scheduler.Load(t.Context())
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	h.minutes(3)
	h.fill("t", "03")
	wantHours(t, b, "not downsampled", "60/60 60/60 60/60")
	now.Store(at(26, 0, 0))
	f.before = func() { b.fold(t) }
	h.fillMinutes(1, 10, 20)
	if f.before != nil {
		t.Fatal("the run has stored nothing")
	}
	now.Add(1000)
	b.fold(t)
	now.Add(24 * 3_600_000) // what was in memory is downsampled as well
	b.fold(t)
	wantHours(t, b, "downsampled", "60/60 60/60 60/60")
}

func TestJoinedSpans(t *testing.T) {
	span := func(from, to int64) downsampledSpan {
		return downsampledSpan{TimeRange: model.TimeRange{StartMS: from, EndMS: to}}
	}
	for _, tc := range []struct{ in, want []downsampledSpan }{
		{[]downsampledSpan{span(5, 9)}, []downsampledSpan{span(5, 9)}},
		{[]downsampledSpan{span(10, 19), span(0, 9)}, []downsampledSpan{span(0, 9), span(10, 19)}},                 // side by side
		{[]downsampledSpan{span(0, 9), span(9, 19)}, []downsampledSpan{span(0, 19)}},                               // one time in both
		{[]downsampledSpan{span(0, 59), span(10, 19), span(60, 69)}, []downsampledSpan{span(0, 59), span(60, 69)}}, // one in the other
		{[]downsampledSpan{span(0, 9), span(0, 9)}, []downsampledSpan{span(0, 9)}},                                 // of two types
	} {
		before := fmt.Sprint(tc.in)
		if got := joined(tc.in); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("joined(%s) = %v, want %v", before, got, tc.want)
		}
	}
}

func TestSpanAt(t *testing.T) {
	all := joined([]downsampledSpan{{TimeRange: model.TimeRange{StartMS: 0, EndMS: 9}}, {TimeRange: model.TimeRange{StartMS: 20, EndMS: 29}}})
	for ms, want := range map[int64]int{-1: -1, 0: 0, 9: 0, 10: -1, 19: -1, 20: 1, 29: 1, 30: -1} {
		got := spanAt(all, ms)
		if want < 0 && got != nil || want >= 0 && got != &all[want] {
			t.Errorf("spanAt(%d) = %v, want span %d", ms, got, want)
		}
	}
	if spanAt(nil, 0) != nil {
		t.Error("there is a span in none")
	}
}

func TestBucketsOverTheBeginningOfTime(t *testing.T) {
	for start, want := range map[int64]int64{100: 90, math.MinInt64 + 11: math.MinInt64 + 1, math.MinInt64 + 10: math.MinInt64 + 10, math.MinInt64: math.MinInt64} {
		if got := bucketsOver(model.TimeRange{StartMS: start, EndMS: 200}, 10); got != (model.TimeRange{StartMS: want, EndMS: 200}) {
			t.Errorf("buckets over %d..200 begin in %v, want from %d on", start, got, want)
		}
	}
}

// endless yields results, one per millisecond.
type endless struct{ left, ms int64 }

func (e *endless) Next(p *agg.Point) (bool, error) {
	if e.left == 0 {
		return false, nil
	}
	*p = agg.Point{TimeMS: e.ms, Kind: model.Long}
	e.left, e.ms = e.left-1, e.ms+1
	return true, nil
}

func TestCollectBoundsResults(t *testing.T) {
	o := &output{within: model.AllTime, renewal: &renewal{}}
	for n, want := range map[int64]error{maxWhole: nil, maxWhole + 1: errTooManyResults} {
		points, err := o.collect(&agg.Group{Points: &endless{left: n}}, nil)
		if err != want || err == nil && int64(len(points)) != n {
			t.Errorf("%d results: %d, %v, want %v", n, len(points), err, want)
		}
	}
}

func TestCollectBoundsTexts(t *testing.T) {
	const long = 50_000
	o := &output{within: model.AllTime, renewal: &renewal{}}
	for n, want := range map[int]error{maxWholeBytes / long: nil, maxWholeBytes/long + 1: errTooManyResults} {
		points, err := o.collect(&agg.Group{Points: &texts{most: n, bytes: long}}, nil)
		if err != want || err == nil && len(points) != n {
			t.Errorf("%d texts: %d, %v, want %v", n, len(points), err, want)
		}
	}
}

// More texts than collect allows are stored all the same: the store downsamples no texts, so they
// need not wait until it is known what they replace.
func TestTextsAmongDownsampledResults(t *testing.T) {
	h, _ := newDownsampled(t)
	const long, many = 50_000, maxWholeBytes/50_000 + 1
	for name, keep := range map[string]bool{"replaced": false, "kept": true} {
		o := &output{scheduler: h.scheduler, writer: h.pipeline.NewWriter(h.scheduler.protocol, "", 0), metric: name, source: "src"}
		o.begin(model.AllTime)
		o.renewal = &renewal{around: model.AllTime, asked: model.AllTime, keep: keep}
		err := o.add(t.Context(), &agg.Group{Points: &texts{most: many, bytes: long}})
		if err := errors.Join(err, o.flush(t.Context())); err != nil || o.stored != many {
			t.Errorf("%s: %d texts stored, want %d: %v", name, o.stored, many, err)
		}
	}
}

// Results in the spans that stay are left out, those around them are stored.
func TestResultsOutsideSpans(t *testing.T) {
	h, _ := newDownsampled(t)
	o := &output{scheduler: h.scheduler, writer: h.pipeline.NewWriter(h.scheduler.protocol, "", 0), metric: "dst", source: "src"}
	o.begin(model.AllTime)
	err := o.addOutside(t.Context(), &agg.Group{Points: &endless{left: 100, ms: 100}}, []downsampledSpan{{TimeRange: model.TimeRange{StartMS: 110, EndMS: 119}}, {TimeRange: model.TimeRange{StartMS: 199, EndMS: 300}}})
	if err := errors.Join(err, o.flush(t.Context())); err != nil || o.stored != 100-10-1 {
		t.Errorf("%d results stored, want 89: %v", o.stored, err)
	}
}

// Only a span that reaches beyond the computed range, and contains a requested result,
// ends the run: others are whole.
func TestCollectSeesSpansBeyondWhatIsComputed(t *testing.T) {
	around := model.TimeRange{StartMS: 100, EndMS: 199}
	for _, tc := range []struct {
		what  string
		span  model.TimeRange
		asked model.TimeRange
		want  error
	}{
		{"whole", around, around, nil},
		{"begins before", model.TimeRange{StartMS: 99, EndMS: 199}, around, errDownsampledMeanwhile},
		{"ends behind", model.TimeRange{StartMS: 100, EndMS: 200}, around, errDownsampledMeanwhile},
		{"not asked for", model.TimeRange{StartMS: 99, EndMS: 149}, model.TimeRange{StartMS: 150, EndMS: 160}, nil},
		{"asked for at its end", model.TimeRange{StartMS: 99, EndMS: 150}, model.TimeRange{StartMS: 150, EndMS: 160}, errDownsampledMeanwhile},
	} {
		o := &output{within: model.AllTime, renewal: &renewal{asked: tc.asked, around: around}}
		all := []downsampledSpan{{TimeRange: tc.span}}
		_, err := o.collect(&agg.Group{Points: &endless{left: 100, ms: 100}}, all)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
	}
}

// Series with more tags than a result are different series: they do not count and stay.
func TestDownsampledResultsWithMoreTags(t *testing.T) {
	h, b := newDownsampled(t)
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	h.minutes(3)
	h.fill("t", "03")
	ref, err := b.Create(t.Context(), model.Series{Metric: "dst", Tags: model.MustTags("host", "a", "rack", "r", "saved_from", "src"), Type: model.TypeLong})
	if err != nil {
		t.Fatal(err)
	}
	batch := store.Batch{Epoch: b.Epoch()}
	for m := range 60 {
		batch.AddLong(ref, at(1, m, 0), 1, 0)
	}
	if err := b.Append(t.Context(), &batch); err != nil {
		t.Fatal(err)
	}
	b.fold(t)
	h.send("src", "a", 7, at(1, 5, 10))
	h.fillMinutes(1, 5, 5)
	wantHours(t, b, "after", "60/60 127/120 60/60")
}

// A group without results in a bucket gets them, next to one whose results were
// downsampled.
func TestNewGroupBesideDownsampledOnes(t *testing.T) {
	h, b := downsampledHours(t, taskJSON("t", hour, minute, ""))
	h.send("src", "b", 1, at(1, 5, 0), at(1, 6, 0))
	h.fillMinutes(1, 5, 6)
	wantHours(t, b, "after", "60/60 62/62 60/60")
}

// Results of neighbouring buckets that a query reads only for their values are not
// results of the buckets.
func TestDownsampledResultsOfNeighbours(t *testing.T) {
	h, b := newDownsampled(t)
	h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON("t", hour, minute, ""), `}]}]}}]}`, `},{"name":"diff"}]}]}}]}`, 1))
	for m := range 180 {
		h.send("src", "a", int64(m), at(0, m, 0))
	}
	h.fill("t", "03")
	b.fold(t)
	wantHours(t, b, "before", "59/59 60/60 60/60")
	h.send("src", "a", 7, at(1, 59, 10)) // the difference before is 7 more, that behind is 7 less
	h.fillMinutes(1, 59, 59)
	wantHours(t, b, "after", "59/59 67/60 60/60")
}

// A run that replaces a bucket also computes the result before it, which may lie in the bucket of
// an hour for which it computes nothing else. That bucket stays, even if the run has computed as
// many results in it as it has counted.
func TestDownsampledResultsOfTheHourBefore(t *testing.T) {
	h, b := newDownsampled(t)
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	h.send("src", "a", 1, at(0, 39, 0))
	h.send("src", "a", 2, at(1, 10, 0))
	h.fill("t", "03")
	b.fold(t)
	wantHours(t, b, "before", "1/1 2/1 0/0")
	h.send("src", "a", 4, at(0, 59, 0))
	h.send("src", "a", 8, at(1, 30, 0))
	h.fillMinutes(1, 30, 30)
	wantHours(t, b, "the second hour", "1/1 10/2 0/0")
	h.fillMinutes(0, 59, 59)
	wantHours(t, b, "both hours", "5/2 10/2 0/0")
}
