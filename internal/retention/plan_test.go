package retention

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/model"
	"varve/internal/quantile"
)

func mustStages(t *testing.T, text string) Stages {
	t.Helper()
	s, err := ParseStages(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPlan(t *testing.T) {
	const now = 1_700_000_123_456
	got := mustStages(t, "10s:6h,60s:30d,1h:5y").Plan(now)
	want := Plan{
		{model.Floor(now-5*365*86_400_000, 3_600_000), 3_600_000},
		{model.Floor(now-30*86_400_000, 3_600_000), 60_000},
		{model.Floor(now-6*3_600_000, 60_000), 0},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for ms, want := range map[int64]int{math.MinInt64: -1, want[0].FromMS - 1: -1, want[0].FromMS: 0, want[1].FromMS - 1: 0, want[1].FromMS: 1, want[2].FromMS: 2, math.MaxInt64: 2} {
		if i := got.At(ms); i != want {
			t.Errorf("%d is in span %d, want %d", ms, i, want)
		}
	}
}

// TestSamplesFrom is the border of samples in the plan of the same time.
func TestSamplesFrom(t *testing.T) {
	for _, stages := range []Stages{{{10, 3600}}, {{10, 3600}, {60, 86_400}}, {{1, 3600}, {60, 3601}, {3600, 7200}}} {
		for now := int64(-7_200_000); now < 1_700_000_000_000; now += 98_765_432_101 {
			if got, want := stages.SamplesFromMS(now), stages.Plan(now).Border(0); got != want {
				t.Errorf("%v at %d: %d, want %d", stages, now, got, want)
			}
		}
	}
}

// TestPlanOfCloseStages: spans do not overlap if two stages are kept for nearly the
// same time.
func TestPlanOfCloseStages(t *testing.T) {
	stages := Stages{{1, 3600}, {60, 3601}, {3600, 7200}}
	for now := int64(1_700_000_000_000); now < 1_700_000_000_000+7_200_000; now += 17_331 {
		p := stages.Plan(now)
		for i := 1; i < len(p); i++ {
			if p[i].FromMS < p[i-1].FromMS || p[i].FromMS%p[i-1].StepMS != 0 {
				t.Fatalf("at %d: %v", now, p)
			}
		}
	}
}

func TestTargets(t *testing.T) {
	p := Plan{{0, 3_600_000}, {100, 60_000}, {200, 0}}
	for _, c := range []struct {
		span            int
		step, want      int64
		borderOfTheStep int64
	}{
		{2, 0, 0, 200}, {1, 0, 60_000, 200}, {0, 0, 3_600_000, 200},
		{2, 10_000, 10_000, 200}, {1, 10_000, 60_000, 200}, {0, 10_000, 3_600_000, 200},
		{1, 60_000, 60_000, 100}, {0, 60_000, 3_600_000, 100},
		{1, 7_000, 7_000, 0}, {0, 7_000, 7_000, 0}, // divides neither step
		{1, 25_000, 3_600_000, 200}, // divides the second only
		{0, 86_400_000, 86_400_000, 0},
	} {
		if got := p.Target(c.span, c.step); got != c.want {
			t.Errorf("data of %d ms in span %d: %d, want %d", c.step, c.span, got, c.want)
		}
		if got := p.Border(c.step); got != c.borderOfTheStep {
			t.Errorf("border of data of %d ms: %d, want %d", c.step, got, c.borderOfTheStep)
		}
	}
}

func TestMethods(t *testing.T) {
	var a model.Aggregate
	for i, v := range []float64{3, -7, 4} {
		a.Add(int64(i), v)
	}
	wants := map[Method]float64{Average: 0, Sum: 0, Last: 4, Max: 4, Min: -7, Count: 3, AverageZero: 0, AbsoluteMax: -7, AbsoluteMin: 4}
	for _, m := range methods {
		want, ok := wants[m]
		if got := m.Of(a, 6); !ok || got != want {
			t.Errorf("%s: %v, want %v; in this test: %v", m, got, want, ok)
		}
		if m == AbsoluteMin {
			want = 3 // which is neither the least nor the greatest
		}
		if got := (&Aggregation{Method: m}).Merge([]float64{3, -7, 4}, false); got != want {
			t.Errorf("%s of samples: %v, want %v", m, got, want)
		}
	}
	for m, want := range map[Method]map[model.Aggregate]float64{
		AbsoluteMax: {{Count: 2, Min: -2, Max: 7}: 7, {Count: 2, Min: -3, Max: 3}: 3, {Count: 2, Min: -7, Max: -2}: -7},
		AbsoluteMin: {{Count: 2, Min: -2, Max: 7}: -2, {Count: 2, Min: -3, Max: 3}: -3, {Count: 2, Min: -7, Max: -2}: -2},
	} {
		for bucket, value := range want {
			if got := m.Of(bucket, 6); got != value {
				t.Errorf("%s from %v to %v: %v, want %v", m, bucket.Min, bucket.Max, got, value)
			}
		}
	}
	a.Add(3, 12)
	if got := AverageZero.Of(a, 6); got != 2 {
		t.Errorf("the average of 6, of which 4 are there: %v", got)
	}
	for m, want := range map[Method]float64{"p50": 3, "p95": 3} { // without a sketch, the average
		if got := m.Of(a, 6); got != want {
			t.Errorf("%s: %v, want %v", m, got, want)
		}
	}
	a.Sketch = quantile.Of(3, -7, 4, 12)
	for m, want := range map[Method]float64{"p1": -7, "p20": -7, "p21": 3, "p40": 3, "p50": 4, "p95": 12, "p99.9": 12, "p100": 12} {
		if got := m.Of(a, 6); math.Abs(got-want) > quantile.RelativeError*math.Abs(want) {
			t.Errorf("%s: %v, want %v", m, got, want)
		}
		if got := (&Aggregation{Method: m}).Merge([]float64{3, math.NaN(), -7, 4, 12}, false); got != want {
			t.Errorf("%s of the samples: %v, want %v", m, got, want)
		}
	}
	if got := Sum.Of(model.Aggregate{}, 1); got == got {
		t.Errorf("the sum of nothing: %v", got)
	}
}

// TestOfAll: the values of columns are those of each bucket, and columns that Needs
// omits are not read.
func TestOfAll(t *testing.T) {
	buckets := []model.Aggregate{
		{Sum: 12.5, Count: 4, Min: -5, Max: 9.5, Last: 3, LastMS: 7},
		{},
		{Sum: -3, Count: 1, Min: -3, Max: -3, Last: -3, LastMS: 60_000},
		{Sum: math.Inf(1), Count: 2, Min: 1, Max: math.Inf(1), Last: 1},
		{Sum: 6, Count: 60, Min: 0.1, Max: 0.1, Last: 0.1},
	}
	for _, m := range append(slices.Clone(methods), "p50") {
		var columns model.Aggregates
		for i, b := range buckets {
			columns.Add(int64(i)*60_000, b, m.Needs())
		}
		got := m.OfAll([]float64{42}, &columns, 6)
		if len(got) != len(buckets)+1 || got[0] != 42 {
			t.Fatalf("%s: %v", m, got)
		}
		for i, b := range buckets {
			if want := m.Of(b, 6); got[i+1] != want && (want == want || got[i+1] == got[i+1]) {
				t.Errorf("%s of %+v: %v, want %v", m, b, got[i+1], want)
			}
		}
	}
}
