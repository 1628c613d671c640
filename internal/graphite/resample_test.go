package graphite

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/graphite/function"
	"varve/internal/graphite/graphitetest"
	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
)

// ones returns a bucket of samples with the value 1.
func ones(startMS, stepMS, n int64) store.Bucket {
	return store.Bucket{StartMS: startMS, StepMS: stepMS, Aggregate: model.Aggregate{Sum: float64(n), Count: n, Min: 1, Max: 1, Last: 1, LastMS: startMS + stepMS - 1}}
}

func newResampler(t *testing.T, method retention.Method, factor float64) resampler {
	rules, _, err := retention.ParseSchemas("[a]\npattern = .\nretentions = 10s:6h,60s:30d,1h:5y\n")
	if err != nil {
		t.Fatal(err)
	}
	policy := retention.Policy{Rule: &rules[0], Aggregation: &retention.Aggregation{Method: method, XFilesFactor: factor}}
	return resampler{policy: policy, stage: 2, stepMS: 10_000}
}

// TestResamplerPoints: buckets of several files within one point, and late samples, form that
// point together.
func TestResamplerPoints(t *testing.T) {
	values := make([]float64, 720)
	fill(values)
	values[7] = 5 // in the first hour
	buckets := []store.Bucket{ones(0, 3_600_000, 180), ones(1_800_000, 60_000, 6), ones(1_860_000, 60_000, 6), ones(3_600_000, 60_000, 6), ones(3_660_000, 60_000, 3)}
	got := newResampler(t, retention.Sum, 0).points(nil, values, buckets)
	want := []stagePoint{{2, 0, 197}, {1, 60, 6}, {1, 61, 3}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(stagePoint{})); d != "" {
		t.Error(d)
	}
}

// TestResamplerLast: the last sample of a point is the last one by time, whether it is downsampled or arrived
// late and is not yet.
func TestResamplerLast(t *testing.T) {
	for _, c := range []struct {
		slot int   // of the late sample
		last int64 // time of the last downsampled sample
		want float64
	}{{0, 24_000, 1}, {5, 24_000, 5}, {2, 20_000, 5}, {2, 30_000, 1}} {
		values := make([]float64, 12)
		fill(values)
		values[6+c.slot] = 5
		b := ones(60_000, 60_000, 3)
		b.LastMS = 60_000 + c.last
		r := newResampler(t, retention.Last, 0)
		r.stage = 1
		if got := r.points(nil, values, []store.Bucket{b}); len(got) != 1 || got[0].value != c.want {
			t.Errorf("a late sample in step %d, the last other one after %d ms: %+v, want %v", c.slot, c.last, got, c.want)
		}
	}
}

// TestResamplerFactor: more samples in a bucket never make its point disappear, except when the
// first one is at its very beginning.
func TestResamplerFactor(t *testing.T) {
	r := newResampler(t, retention.Average, 0.5)
	for n := int64(1); n <= 360; n++ {
		if v := r.value(ones(0, 3_600_000, n)); (v == v) != (n >= 180) {
			t.Errorf("%d samples of 360: %v", n, v)
		}
	}
	imported := ones(0, 3_600_000, 1)
	imported.LastMS = 0
	if v := r.value(imported); v != 1 {
		t.Errorf("a point of a coarser archive: %v", v)
	}
}

// TestImportedPoints: points of a coarser archive count as its whole step, in samples, in buckets and
// in both, whichever are earlier.
func TestImportedPoints(t *testing.T) {
	single := ones(0, 10_000, 1)
	single.LastMS = 0
	later := single
	later.StartMS, later.LastMS = 60_000, 60_000
	values := func(at ...int) []float64 {
		all := make([]float64, 360)
		fill(all)
		for _, i := range at {
			all[i] = 1
		}
		return all
	}
	for _, c := range []struct {
		values  []float64
		buckets []store.Bucket
		want    float64
	}{
		{values(0, 6), nil, 12}, {values(0), []store.Bucket{later}, 12}, {values(6), []store.Bucket{single}, 12}, {nil, []store.Bucket{single, later}, 12},
		{values(0), nil, 360}, {nil, []store.Bucket{single}, 360}, // one an hour
		{values(1), []store.Bucket{single}, 2}, {values(0, 1), []store.Bucket{later}, 8},
	} {
		r := newResampler(t, retention.Average, 0.5)
		const year = 365 * 24 * 3_600_000
		if got := r.imported(c.values, c.buckets, 0, year); got != c.want {
			t.Errorf("%d buckets: %v samples, want %v", len(c.buckets), got, c.want)
		}
	}
}

// TestImportedPercentiles: a single sample is enough for a percentile if it is at the beginning of
// the step and older than the finer archive, where it would be one of many.
func TestImportedPercentiles(t *testing.T) {
	values := make([]float64, 6)
	fill(values)
	values[0] = 5
	for ageMS, there := range map[int64]bool{3_600_000: false, 7 * 3_600_000: true} {
		r := newResampler(t, retention.Method("p50"), 0.5)
		r.stage = 1
		points := make([]float64, 1)
		r.percentiles(points, values, nil, ageMS)
		if (points[0] == 5) != there {
			t.Errorf("after %d ms: %v", ageMS, points)
		}
	}
}

// TestPercentilesOfArchives renders paths whose aggregation method is a percentile, on each
// archive, before and after downsampling, and compares points with the samples.
func TestPercentilesOfArchives(t *testing.T) {
	dir := t.TempDir()
	config := DefaultConfig()
	config.StorageSchemas, config.StorageAggregation = filepath.Join(dir, "schemas"), filepath.Join(dir, "aggregation")
	for path, text := range map[string]string{
		config.StorageSchemas:     "[a]\npattern = ^a\nretentions = 10s:1h,60s:6h,1h:1y\n",
		config.StorageAggregation: "[p]\npattern = .\naggregationMethod = p90\nxFilesFactor = 0.1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openSite(t, config, query.DefaultConfig(), true)
	now := graphitetest.Clock.Unix() / 3600 * 3600
	r := rand.New(rand.NewPCG(1, 1))
	samples := map[int64]float64{}
	send := func(from, until, step int64) {
		var lines strings.Builder
		for at := from; at < until; at += step {
			samples[at] = math.Round(1e4*math.Exp(r.NormFloat64())) / 1e4
			fmt.Fprintf(&lines, "a.x %v %d\n", samples[at], at)
		}
		s.send(lines.String())
	}
	fold := func() {
		if err := s.store.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// check looks at the archive that reaches back for so many seconds.
	check := func(when string, back, step int64, exact bool) {
		t.Helper()
		form := url.Values{"target": {"a.x"}, "format": {"json"}, "from": {fmt.Sprint(now - back)}, "until": {fmt.Sprint(now - 1)}}
		w := s.ask("GET", "/render", form)
		var got []struct{ Datapoints [][2]*float64 }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 1 || int64(len(got[0].Datapoints)) < (back-step)/step {
			t.Fatalf("%s: %v, %d %.300s", when, err, w.Code, w.Body)
		}
		for _, point := range got[0].Datapoints {
			at := int64(*point[1])
			if at >= now {
				continue
			}
			var all []float64
			for ms := at; ms < at+step; ms++ {
				if v, there := samples[ms]; there {
					all = append(all, v)
				}
			}
			slices.Sort(all)
			want, within := all[model.Rank(90, int64(len(all)))-1], quantile.RelativeError
			if exact {
				within = 0
			}
			if point[0] == nil || math.Abs(*point[0]-want) > within*want {
				t.Fatalf("%s: %v of %d samples from %d on, want %v", when, point[0], len(all), at, want)
			}
		}
	}
	send(now-86400, now, 10)
	check("samples", 3600, 10, true)
	check("minutes of samples", 6*3600, 60, true)
	check("hours of samples", 86400, 3600, true)
	fold()
	check("samples", 3600, 10, true)
	check("minutes", 6*3600, 60, false)
	check("hours, of buckets of an hour, of a minute, and of samples", 86400, 3600, false)
	send(now-2*3600+5, now-3600-1000, 60)
	send(now-20*3600+5, now-19*3600, 60)
	check("minutes with late samples", 6*3600, 60, false)
	check("hours with late samples", 86400, 3600, false)
	fold()
	check("minutes with late samples, folded", 6*3600, 60, false)
	check("hours with late samples, folded", 86400, 3600, false)
}

// TestPercentileWithoutSketch: a bucket from before its policy had a percentile shows its
// average, and so does a point that contains such a bucket.
func TestPercentileWithoutSketch(t *testing.T) {
	sketched := func(startMS, stepMS int64, values ...float64) store.Bucket {
		b := store.Bucket{StartMS: startMS, StepMS: stepMS}
		for i, v := range values {
			b.Add(startMS+int64(i), v)
		}
		b.Sketch = quantile.Of(values...)
		return b
	}
	values := make([]float64, 3*360)
	fill(values)
	values[365] = 1000 // in the second hour
	buckets := []store.Bucket{
		ones(0, 3_600_000, 180), sketched(3_600_000, 60_000, 1, 2, 3), sketched(3_660_000, 60_000, 500), sketched(7_200_000, 60_000, 3, 5), ones(7_260_000, 60_000, 6),
	}
	points := make([]float64, 3)
	newResampler(t, "p100", 0).percentiles(points, values, buckets, 1e9)
	if want := []float64{1, 1000, 14.0 / 8}; !slices.Equal(points, want) {
		t.Errorf("%v, want %v", points, want)
	}
}

// plainPoints computes the points of all samples and buckets of a series in the simplest way:
// from the finest stage on, in one window.
func plainPoints(t *testing.T, session *query.Session, g *grid, number query.Number, p retention.Policy) []float64 {
	lease := session.Lease()
	defer lease.Release()
	var all store.Buckets
	if err := session.AppendBuckets(&all, number, g.within(0, g.n), model.AllStats, &lease); err != nil {
		t.Fatal(err)
	}
	var buckets []store.Bucket
	for i := range all.Len() {
		buckets = append(buckets, all.At(i))
	}
	fine := query.Grid{StartMS: g.start * 1000, StepMS: g.finest * 1000, N: int(g.n * g.step / g.finest)}
	columns, err := session.GridFold(&lease).Fold(number, fine, model.StatLast)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float64, fine.N)
	fill(values)
	for i, count := range columns.Count {
		if count > 0 {
			values[i] = columns.Last[i]
		}
	}
	r := resampler{policy: p, stage: g.stage, startMS: fine.StartMS, stepMS: fine.StepMS}
	if _, ok := p.Aggregation.Method.Percentile(); ok {
		points := make([]float64, g.n)
		r.percentiles(points, values, buckets, g.now*1000)
		return points
	}
	exact := slices.Repeat([]float64{math.NaN()}, int(g.n))
	if r.bySamples(len(buckets) > 0) {
		r.whole(exact, values, buckets, g.now*1000)
		if p.Enforced {
			return exact
		}
	}
	points := g.archive(values, 0, g.start, p, r.points(nil, values, buckets))
	for i, v := range points {
		if v == v && exact[i] == exact[i] {
			points[i] = exact[i]
		}
	}
	return points
}

// TestAveragesOfGaps: with gaps, a point of a coarser archive is the average of its samples,
// or their number, before they are downsampled and after each fold, whether they were on time
// or late.
func TestAveragesOfGaps(t *testing.T) {
	dir := t.TempDir()
	config := DefaultConfig()
	config.StorageSchemas, config.StorageAggregation = filepath.Join(dir, "schemas"), filepath.Join(dir, "aggregation")
	for path, text := range map[string]string{
		config.StorageSchemas:     "[a]\npattern = .\nretentions = 10s:1h,60s:1d,1h:1y\n",
		config.StorageAggregation: "[c]\npattern = count\naggregationMethod = count\nxFilesFactor = 0\n[a]\npattern = .\naggregationMethod = average\nxFilesFactor = 0.1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openSite(t, config, query.DefaultConfig(), true)
	now := graphitetest.Clock.Unix()
	sums, counts := map[int64]float64{}, map[int64]float64{}
	send := func(from, until, offset int64) {
		var lines strings.Builder
		for at := from + offset; at < until; at += 10 * (1 + at/10%7) { // gaps of many lengths
			v := float64(at / 10 % 97)
			fmt.Fprintf(&lines, "average %v %d\ncount %v %d\n", v, at, v, at)
			sums[at/3600] += v
			counts[at/3600]++
		}
		s.send(lines.String())
	}
	check := func(when string) {
		t.Helper()
		form := url.Values{"target": {"average", "count"}, "format": {"json"}, "from": {fmt.Sprint(now - 3*86400)}, "until": {fmt.Sprint(now - 3600)}}
		var got []struct{ Datapoints [][2]*float64 }
		w := s.ask("GET", "/render", form)
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 2 || len(got[0].Datapoints) != 71 {
			t.Fatalf("%s: %v, %d %.300s", when, err, w.Code, w.Body)
		}
		for i := range got[0].Datapoints {
			hour := int64(*got[0].Datapoints[i][1]) / 3600
			for k, want := range []float64{sums[hour] / counts[hour], counts[hour]} {
				if v := got[k].Datapoints[i][0]; v == nil || math.Abs(*v-want) > 1e-9*want {
					t.Fatalf("%s, series %d: hour %d is %v, want %v", when, k, i, *v, want)
				}
			}
		}
	}
	fold := func() {
		if err := s.store.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	send(now-3*86400, now, 0)
	check("samples")
	fold()
	check("buckets of an hour and of a minute, and samples")
	send(now-50*3600, now-40*3600, 7) // only new times
	send(now-12*3600, now-10*3600, 7)
	check("late samples")
	fold()
	check("late samples, folded")
}

// TestReaderAgainstPlain: the points are the same as those of plainPoints, for each method, on
// each archive, before, between and after folds.
func TestReaderAgainstPlain(t *testing.T) {
	dir := t.TempDir()
	config := DefaultConfig()
	config.StorageSchemas, config.StorageAggregation = filepath.Join(dir, "schemas"), filepath.Join(dir, "aggregation")
	methods := []retention.Method{"average", "sum", "last", "max", "min", "count", "avg_zero", "absmax", "absmin", "p90"}
	var sections strings.Builder
	for i, method := range methods {
		fmt.Fprintf(&sections, "[%s]\npattern = ^%s\\.\naggregationMethod = %s\nxFilesFactor = %v\n", method, method, method, []float64{0, 0.1, 0.6}[i%3])
	}
	for path, text := range map[string]string{
		config.StorageSchemas:     "[a]\npattern = .\nretentions = 10s:1h,60s:6h,10m:2d,1h:1y\n",
		config.StorageAggregation: sections.String(),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openSite(t, config, query.DefaultConfig(), true)
	book, err := config.Book(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := graphitetest.Clock.Unix()
	r := rand.New(rand.NewPCG(2, 2))
	checkAs := func(when string, enforced bool) (values int) {
		t.Helper()
		book.Enforced = enforced
		session, err := s.queries.Begin(t.Context(), query.Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(nil)
		src := &source{session: session, book: book}
		for _, method := range methods {
			for _, back := range []int64{3600, 6 * 3600, 2 * 86400, 30 * 86400} {
				within := function.Range{From: now - back, Until: now - r.Int64N(back/2), Now: now}
				text := string(method) + ".x"
				lists, err := src.Fetch(t.Context(), []function.Query{{Text: text}}, within)
				if err != nil || len(lists) != 1 || len(lists[0]) != 1 {
					t.Fatalf("%s, %s: %v, %v", when, text, lists, err)
				}
				lease := session.Lease()
				numbers, err := src.numbers(text, nil, &lease)
				if err != nil {
					t.Fatal(err)
				}
				policy := book.Of(retention.SeriesOf(text, numbers[0].Tags))
				g, _ := gridOf(policy, within)
				want, got := plainPoints(t, session, &g, numbers[0], policy), lists[0][0].Values
				for i := range want {
					if want[i] == want[i] {
						values++
					}
					if math.Float64bits(got[i]) != math.Float64bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
						t.Fatalf("%s, %s from %d s back on a step of %d: point %d of %d is %v, want %v", when, text, back, g.step, i, g.n, got[i], want[i])
					}
				}
				lease.Release()
			}
		}
		return values
	}
	check := func(when string) (values int) {
		t.Helper()
		checkAs(when+", of a store that no longer downsamples", false)
		return checkAs(when, true)
	}
	send := func(from, until, apart int64) {
		var lines strings.Builder
		for _, method := range methods {
			for at := from; at < until; at += 1 + r.Int64N(2*apart) {
				fmt.Fprintf(&lines, "%s.x %v %d\n", method, math.Round(1e4*r.NormFloat64())/100, at)
			}
		}
		s.send(lines.String())
	}
	fold := func() {
		if err := s.store.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	send(now-20*86400, now-15*86400, 600)
	send(now-3*86400, now, 20)
	if n := check("samples"); n < 400*len(methods) {
		t.Errorf("%d points have a value", n)
	}
	fold()
	if n := check("buckets, and samples of the last hour"); n < 400*len(methods) {
		t.Errorf("%d points have a value", n)
	}
	send(now-18*86400, now-17*86400, 3000) // late
	send(now-7200, now-6000, 100)
	check("late samples")
	fold()
	check("late samples, folded")
}

// TestFoldKeepsSingleSamples: a point of a single sample in the first step of the finest stage,
// but not at its very beginning, does not disappear when the sample is downsampled.
func TestFoldKeepsSingleSamples(t *testing.T) {
	dir := t.TempDir()
	config := DefaultConfig()
	config.StorageSchemas, config.StorageAggregation = filepath.Join(dir, "schemas"), filepath.Join(dir, "aggregation")
	for path, text := range map[string]string{
		config.StorageSchemas:     "[a]\npattern = .\nretentions = 10s:1h,60s:6h,10m:2d\n",
		config.StorageAggregation: "[a]\npattern = .\naggregationMethod = last\nxFilesFactor = 0.5\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openSite(t, config, query.DefaultConfig(), true)
	now := graphitetest.Clock.Unix()
	minute, ten := now-2*3600, now-12*3600
	s.send(fmt.Sprintf("a.x 1 %d\na.x 2 %d\na.x 3 %d\na.x 4 %d\n", minute+2, minute+60+12, ten+9, ten+600+10))
	ask := func(from, until int64) string {
		return s.ask("GET", "/render", url.Values{"target": {"a.x"}, "format": {"raw"}, "from": {fmt.Sprint(from)}, "until": {fmt.Sprint(until)}}).Body.String()
	}
	questions := func() [2]string { return [2]string{ask(minute-60, minute+60), ask(ten-600, ten+600)} }
	before := questions()
	if !strings.HasSuffix(strings.TrimSpace(before[0]), "|1.0,None") || !strings.HasSuffix(strings.TrimSpace(before[1]), "|3.0,None") {
		t.Fatalf("%q", before)
	}
	if err := s.store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := questions(); after != before {
		t.Errorf("%q, and once downsampled %q", before, after)
	}
}

// TestFoldChangesNoPoint: whatever the gaps between late samples, a point of a coarser archive exists with the same value
// before and after the samples are downsampled. Samples at the beginning of each minute look like points that were imported from the
// archive of a minute, and count as these until they are in wider buckets.
func TestFoldChangesNoPoint(t *testing.T) {
	dir := t.TempDir()
	config := DefaultConfig()
	config.StorageSchemas, config.StorageAggregation = filepath.Join(dir, "schemas"), filepath.Join(dir, "aggregation")
	methods := []string{"average", "sum", "last", "max", "min", "count", "avg_zero", "absmax"}
	var sections strings.Builder
	for _, method := range methods {
		fmt.Fprintf(&sections, "[%s]\npattern = ^%s\\.\naggregationMethod = %s\nxFilesFactor = 0.5\n", method, method, method)
	}
	for path, text := range map[string]string{
		config.StorageSchemas:     "[a]\npattern = .\nretentions = 10s:1h,60s:6h,10m:2d,1h:1y\n",
		config.StorageAggregation: sections.String(),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := openSite(t, config, query.DefaultConfig(), true)
	now := graphitetest.Clock.Unix()
	random := rand.New(rand.NewPCG(3, 3))
	var paths []string
	for _, series := range []struct {
		name string
		sent func(step int64) bool
	}{
		{"beginning", func(step int64) bool { return step%60 < 3 }}, // half of the first minute of ten
		{"minutes", func(step int64) bool { return step%6 > 2 && random.IntN(2) == 0 }},
		{"lumps", func(step int64) bool { return step%60 < 30 || step%60 == 57 }}, // half of the minutes, and a sample in another
		{"first", func(step int64) bool { return step%360 == 0 }},                 // one an hour
		{"random", func(step int64) bool { return step%6 > 0 && random.IntN(5) < 3 }},
		{"scattered", func(step int64) bool { return step%60 < 24 || step%6 == 3 }}, // half of ten minutes, but few of most minutes
		{"imported", func(step int64) bool { return step%6 == 0 }},
		{"often", func(step int64) bool { return step%6 > 0 && random.IntN(5) < 3 }},
	} {
		for _, method := range methods {
			path := method + "." + series.name
			paths = append(paths, path)
			var lines strings.Builder
			for at := now/3600*3600 - 3*86400; at < now; at += 10 {
				if series.sent(at / 10) {
					fmt.Fprintf(&lines, "%s %d %d\n", path, random.IntN(100), at+random.Int64N(10))
					if series.name == "often" {
						for range 4 {
							fmt.Fprintf(&lines, "%s %d %d\n", path, random.IntN(100), at+random.Int64N(10))
						}
					}
				}
			}
			s.send(lines.String())
		}
	}
	slices.Sort(paths)
	type answer map[string][][2]*float64
	ask := func() (all []answer) {
		for _, back := range []int64{3600, 6 * 3600, 2 * 86400, 4 * 86400} {
			form := url.Values{"target": paths, "format": {"json"}, "from": {fmt.Sprint(now - back)}, "until": {fmt.Sprint(now)}}
			w := s.ask("GET", "/render", form)
			var got []struct {
				Target     string
				Datapoints [][2]*float64
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != len(paths) {
				t.Fatalf("%v, %d %.300s", err, w.Code, w.Body)
			}
			a := answer{}
			for _, one := range got {
				a[one.Target] = one.Datapoints
			}
			all = append(all, a)
		}
		return all
	}
	before := ask()
	for _, point := range before[2]["average.scattered"] {
		if at := int64(*point[1]); at > now-47*3600 && at < now-2*3600 && point[0] == nil {
			t.Fatalf("no point of half of the samples at %d", at)
		}
	}
	for i, a := range before[1:] {
		for _, point := range a["average.imported"] {
			if at := int64(*point[1]); at > now-70*3600 && at < now-2*3600 && point[0] == nil {
				t.Fatalf("archive %d: no point of imported samples at %d", i+1, at)
			}
		}
	}
	if err := s.store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := ask()
	for i := range before {
		for _, path := range paths {
			if strings.HasSuffix(path, ".imported") {
				continue
			}
			text := func(v *float64) string {
				if v == nil {
					return "none"
				}
				return fmt.Sprintf("%.9g", *v) // sums are added in another order
			}
			for k, point := range before[i][path] {
				if was, is := text(point[0]), text(after[i][path][k][0]); was != is {
					t.Errorf("archive %d, %s, point %d: %s, and once downsampled %s", i, path, k, was, is)
					break
				}
			}
		}
	}
}
