package numeric

import (
	"slices"
	"testing"
)

// same compares values. Nulls are equal.
func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || IsNull(x) && IsNull(y) })
}

func never() error { return nil }

// TestNoValues: without values, or with only nulls, aggregations are null, and count is 0.
func TestNoValues(t *testing.T) {
	for _, name := range Names() {
		aggregate, _ := Named(name)
		for _, values := range [][]float64{nil, {Null, Null}} {
			want := Null
			if name == "count" || name == "avg_zero" && len(values) > 0 {
				want = 0
			}
			if got := aggregate(values); !same([]float64{got}, []float64{want}) {
				t.Errorf("%s of %v is %g; want %g", name, values, got, want)
			}
		}
	}
}

// TestAccumulators: series by series, they give the same as the aggregation row by row.
func TestAccumulators(t *testing.T) {
	columns := [][]float64{{1, Null, 5}, {2, Null, -3}, {Null, Null}}
	for _, name := range []string{"sum", "max", "min"} {
		aggregate, _ := Named(name)
		accumulate, ok := AccumulatorOf(name)
		if !ok {
			t.Fatalf("%s has no accumulator", name)
		}
		rows, sums, counts := make([]float64, 3), make([]float64, 3), make([]int32, 3)
		if err := EachRow(rows, columns, aggregate, never); err != nil {
			t.Fatal(err)
		}
		for _, column := range columns {
			accumulate(sums, counts, column)
		}
		for i, n := range counts {
			if n == 0 {
				sums[i] = Null
			}
		}
		if !same(rows, sums) {
			t.Errorf("%s: %v by rows, %v by series", name, rows, sums)
		}
	}
}

func TestCounter(t *testing.T) {
	values := []float64{10, 15, 3, Null, 4, 300, 5}
	for _, c := range []struct {
		counter Counter
		want    []float64
	}{
		{Counter{}, []float64{Null, 5, Null, Null, Null, 296, Null}},
		{Counter{Max: 100, HasMax: true}, []float64{Null, 5, 89, Null, Null, Null, Null}},
		{Counter{Min: 1, HasMin: true}, []float64{Null, 5, 2, Null, Null, 296, 4}},
	} {
		got := make([]float64, len(values))
		if c.counter.Increases(got, values); !same(got, c.want) {
			t.Errorf("%+v: %v; want %v", c.counter, got, c.want)
		}
	}
}

func TestWindows(t *testing.T) {
	values := []float64{1, 2, Null, 4, 5}
	for points, want := range map[int][]float64{0: {Null, Null, Null, Null, Null}, 2: {2, 4, 9}} {
		got := make([]float64, len(values)-points)
		if err := Windows(got, values, points, "sum", 0.5, never); err != nil || !same(got, want) {
			t.Errorf("%d points: %v, %v; want %v", points, got, err, want)
		}
	}
}

// TestBuckets: rates with a step of 10 s from 5 on, in buckets of 20 s from 0 on.
func TestBuckets(t *testing.T) {
	b := Buckets{Start: 0, Interval: 20}
	values := []float64{1, 2, Null, 4}
	hits, sums := make([]float64, 3), make([]float64, 3)
	b.Spread(hits, values, 5, 10)
	if want := []float64{10 + 10, 10 + 20, 20}; !same(hits, want) {
		t.Errorf("hits %v; want %v", hits, want)
	}
	if err := b.Aggregate(sums, values, 5, 10, Sum, never); err != nil || !same(sums, []float64{3, 4, Null}) {
		t.Errorf("sums %v, %v", sums, err)
	}
}

func TestGaps(t *testing.T) {
	filled, line := []float64{Null, 1, Null, 3, Null, Null, 6}, []float64{Null, 1, Null, 3, Null, Null, 6}
	FillGaps(filled, 1)
	Interpolate(line, 2)
	if want := []float64{Null, 1, 1, 3, Null, Null, 6}; !same(filled, want) {
		t.Errorf("filled %v; want %v", filled, want)
	}
	if want := []float64{Null, 1, 2, 3, 4, 5, 6}; !same(line, want) {
		t.Errorf("interpolated %v; want %v", line, want)
	}
}
