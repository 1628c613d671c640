package numeric

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// windowsEach is Windows without sliders and lanes.
func windowsEach(values []float64, points int, name string, xFilesFactor float64) []float64 {
	out := make([]float64, len(values)-points)
	for i := range out {
		var present []float64
		for _, v := range values[i+1 : i+1+points] {
			if !IsNull(v) {
				present = append(present, v)
			}
		}
		if out[i] = Null; Enough(len(present), float64(points), xFilesFactor) {
			out[i] = aggregations[name](present)
		}
	}
	return out
}

// A slider gives the same as the aggregation of each window from scratch.
func TestSlidingWindows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for kind, value := range map[string]func() float64{
		"counts":         func() float64 { return float64(random.IntN(1000) - 500) },
		"large counts":   func() float64 { return float64(random.Int64N(1 << 53)) },
		"sums too large": func() float64 { return float64(1<<54/slidingFrom - random.IntN(1000)) },
		"few":            func() float64 { return float64(random.IntN(3)) },
		"eighths":        func() float64 { return float64(random.IntN(100000)) / 8 },
		"decimals":       func() float64 { return float64(random.IntN(100000)) / 100 },
		"any size":       func() float64 { return math.Ldexp(random.Float64()-0.5, random.IntN(2000)-1000) },
		"infinities":     func() float64 { return []float64{1, 2, 3, math.Inf(1), math.Inf(-1)}[min(random.IntN(200), 4)] },
		"zeros":          func() float64 { return math.Copysign(0, random.Float64()-0.5) },
		"nulls":          func() float64 { return Null },
	} {
		values := make([]float64, 600)
		for i := range values {
			if values[i] = value(); random.IntN(4) == 0 {
				values[i] = Null
			}
		}
		for i := 250; i < 350; i++ {
			values[i] = Null // so that windows are empty
		}
		for name := range aggregations {
			for _, points := range []int{1, lanes, lanes + 1, 2*lanes + 1, slidingFrom, 401, 592, 599, 600} {
				for _, xFilesFactor := range []float64{0, 0.5} {
					got := make([]float64, len(values)-points)
					if err := Windows(got, values, points, name, xFilesFactor, never); err != nil {
						t.Fatal(err)
					}
					want := windowsEach(values, points, name, xFilesFactor)
					for i := range got {
						if got[i] != want[i] && !(IsNull(got[i]) && IsNull(want[i])) {
							t.Fatalf("%s of %d %s: %v at %d, want %v", name, points, kind, got[i], i, want[i])
						}
					}
				}
			}
		}
	}
}

// A window of half a million values moves as fast as a short one. Aggregated one by one, such windows
// would have 10^11 values. If the sum depends on the order, it is as exact as a double can be.
func TestLongWindows(t *testing.T) {
	values := make([]float64, 1<<20)
	for i := range values {
		values[i] = 0.1
	}
	for _, name := range []string{"sum", "average", "min", "max", "range", "median", "count", "last"} {
		const points = 1 << 19
		out := make([]float64, len(values)-points)
		if err := Windows(out, values, points, name, 0, never); err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{"sum": points * 0.1, "range": 0, "count": points}[name]
		if name != "sum" && name != "range" && name != "count" {
			want = 0.1
		}
		for _, i := range []int{0, 1, len(out) / 2, len(out) - 1} {
			if out[i] != want {
				t.Errorf("%s: %v at %d, want %v", name, out[i], i, want)
			}
		}
	}
}

// Sums, products and deviations in lanes call check within a window, and end with its error.
func TestLanesEnd(t *testing.T) {
	enough := fmt.Errorf("enough")
	values := make([]float64, 1<<20)
	for i := range values {
		values[i] = 0.1 + float64(i%7)
	}
	for _, name := range []string{"diff", "multiply", "stddev"} {
		checks := 0
		err := Windows(make([]float64, 1<<19), values, 1<<19, name, 0, func() error {
			if checks++; checks == 3 {
				return enough
			}
			return nil
		})
		if err != enough || checks != 3 {
			t.Errorf("%s: %v after %d checks", name, err, checks)
		}
	}
}

func BenchmarkWindows(b *testing.B) {
	values := make([]float64, 50_000)
	for i := range values {
		values[i] = 0.1 + float64(i%7)
	}
	for _, name := range []string{"sum", "diff", "multiply", "stddev"} {
		b.Run("by="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := Windows(make([]float64, len(values)-2000), values, 2000, name, 0, never); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Whatever the aggregation and the length of the window, the work ends with an error of check.
func TestEveryWindowEnds(t *testing.T) {
	enough := fmt.Errorf("enough")
	values := make([]float64, 50_000)
	for i := range values {
		values[i] = 0.1 + float64(i%7)
	}
	for name := range aggregations {
		for _, points := range []int{7, lanes + 1, 2 * slidingFrom, longWindow} {
			if err := Windows(make([]float64, len(values)-points), values, points, name, 0, func() error { return enough }); err != enough {
				t.Errorf("%s of %d: %v", name, points, err)
			}
		}
	}
	if err := EachRow(make([]float64, len(values)), [][]float64{values, values, values, values, values, values, values}, Sum, func() error { return enough }); err != enough {
		t.Errorf("rows: %v", err)
	}
}

// Work on a long window ends with an error of check.
func TestLongWindowsEnd(t *testing.T) {
	enough := fmt.Errorf("enough")
	values := make([]float64, 1<<20)
	checks := 0
	err := Windows(make([]float64, 1<<19), values, 1<<19, "median", 0, func() error { checks++; return enough })
	if err != enough || checks != 1 {
		t.Errorf("%v after %d checks", err, checks)
	}
}
