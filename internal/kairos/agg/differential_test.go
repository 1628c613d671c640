package agg

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"varve/internal/model"
	"varve/internal/query"
)

// numbers are values of samples. The sums of all of a set are exact, so they do
// not depend on the order.
type numbers struct {
	longs   []int
	doubles []float64
}

var (
	minusZero = math.Copysign(0, -1)

	quarters = func() (n numbers) {
		for i := -20; i <= 20; i++ {
			n.longs, n.doubles = append(n.longs, i), append(n.doubles, float64(i)/4)
		}
		return n
	}()
	largeLongs   = numbers{[]int{0, math.MaxInt64, math.MinInt64}, []float64{0, minusZero, 0x1p63}}
	largeDoubles = numbers{[]int{0}, []float64{0, minusZero, 0x1p1023, -0x1p1023}} // two of which overflow
)

// equalSamples compares points to the sign of a zero.
var equalSamples = cmp.Options{
	cmp.AllowUnexported(sample{}),
	cmp.FilterValues(func(a, b float64) bool { return a != b }, cmpopts.EquateApprox(1e-12, 1e-9)),
	cmp.FilterValues(func(a, b float64) bool { return a == 0 && b == 0 },
		cmp.Comparer(func(a, b float64) bool { return math.Signbit(a) == math.Signbit(b) })),
}

// The folded way and the merged way give the same answer. The reference store
// honours Summarize, and a small block length makes it ask often.
func TestFoldedEqualsMerged(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // there are never more workers
	rapid.Check(t, func(rt *rapid.T) {
		config := query.DefaultConfig()
		config.Workers = rapid.IntRange(1, 4).Draw(rt, "workers")
		f := newFixture(t, config)
		f.store.BlockSamples = rapid.IntRange(1, 20).Draw(rt, "block")
		fill(rt, f, rapid.SampledFrom([]numbers{quarters, quarters, largeLongs, largeDoubles}).Draw(rt, "numbers"))
		m := drawMetric(rt, t)
		start := rapid.Int64Range(-50_000, 300_000).Draw(rt, "start")
		end := start + rapid.Int64Range(0, 400_000).Draw(rt, "length")
		zone := rapid.SampledFrom(zones).Draw(rt, "zone")

		f.merging = false
		folded, n1, err1 := f.ask(start, end, zone, m)
		f.merging = true
		merged, n2, err2 := f.ask(start, end, zone, m)
		if fmt.Sprint(err1) != fmt.Sprint(err2) || n1 != n2 {
			rt.Fatalf("folded %d samples, %v; merged %d samples, %v", n1, err1, n2, err2)
		}
		if diff := cmp.Diff(merged, folded, equalSamples); diff != "" {
			rt.Fatalf("merged (-) and folded (+) differ:\n%s", diff)
		}
	})
}

// fill stores series with random tags and kinds; times coincide often.
func fill(rt *rapid.T, f *fixture, from numbers) {
	for s := range rapid.IntRange(0, 12).Draw(rt, "series") {
		tags := model.MustTags("n", fmt.Sprint(s), "host", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "host"))
		kind := rapid.SampledFrom([]string{"long", "double", "double", "text"}).Draw(rt, "kind")
		var samples []sample
		for range rapid.IntRange(0, 60).Draw(rt, "samples") {
			ms := rapid.Int64Range(-40, 60).Draw(rt, "time") * 5000
			switch kind {
			case "long":
				samples = append(samples, sample{ms, rapid.SampledFrom(from.longs).Draw(rt, "long")})
			case "double":
				samples = append(samples, sample{ms, rapid.SampledFrom(from.doubles).Draw(rt, "double")})
			default:
				samples = append(samples, sample{ms, fmt.Sprint(rapid.IntRange(-20, 20).Draw(rt, "value"))})
			}
		}
		f.put("m", tags, samples...)
	}
}

func drawMetric(rt *rapid.T, t testing.TB) MetricQuery {
	m := MetricQuery{Metric: "m", Descending: rapid.Bool().Draw(rt, "descending")}
	if rapid.Bool().Draw(rt, "grouped") {
		m.GroupBy = []GroupBy{&TagGroupBy{Tags: []string{"host"}}}
	}
	if rapid.IntRange(0, 4).Draw(rt, "limited") == 0 {
		m.Limit = rapid.IntRange(1, 30).Draw(rt, "limit")
	}
	name := rapid.SampledFrom([]string{"sum", "avg", "min", "max", "count", "first", "last"}).Draw(rt, "aggregator")
	args := Args{"sampling": Sampling{
		rapid.Int64Range(1, 12).Draw(rt, "n") * rapid.SampledFrom([]int64{1, 5, 5}).Draw(rt, "times"), // samples are 5 s apart
		rapid.SampledFrom([]Unit{Milliseconds, Seconds, Seconds, Seconds, Minutes, Hours, Days, Months}).Draw(rt, "unit"),
	}}
	for _, flag := range []string{"align_sampling", "align_start_time", "align_end_time"} {
		if rapid.Bool().Draw(rt, "has "+flag) {
			args[flag] = rapid.Bool().Draw(rt, flag)
		}
	}
	if rapid.IntRange(0, 3).Draw(rt, "origin") == 0 {
		args["start_time"] = rapid.Int64Range(-60_000, 200_000).Draw(rt, "start_time")
	}
	m.Steps = []Step{newStep(t, name, args)}
	if rapid.IntRange(0, 3).Draw(rt, "chained") == 0 {
		m.Steps = append(m.Steps, newStep(t, "max", Args{"sampling": Sampling{1, Minutes}}))
	}
	return m
}
