package numeric

import (
	"math"
	"testing"
)

func TestRound(t *testing.T) {
	for _, c := range []struct {
		v        float64
		decimals int64
		want     float64
	}{
		{2.5, 0, 2}, {3.5, 0, 4}, {2.675, 2, 2.67}, {1234.5, -2, 1200}, {1250, -2, 1200}, {1350, -2, 1400}, {51, -2, 100}, {50, -2, 0}, {-51, -2, -100}, {4, -2, 0}, {999, -1, 1000}, {1e300, -400, 0}, {1.5, 400, 1.5},
	} {
		if got := Round(c.v, c.decimals); got != c.want {
			t.Errorf("Round(%g, %d) = %g; want %g", c.v, c.decimals, got, c.want)
		}
	}
}

func TestLogOfSubnormalNumbers(t *testing.T) {
	for v, want := range map[float64]float64{5e-324: -744.4400719213812, 1e-310: -713.8013788281542, 0x1p-1022: -708.3964185322641, 1: 0, math.E: 1, 0: math.Inf(-1), math.Inf(1): math.Inf(1)} {
		if got := Log(v); math.Abs(got-want) > 1e-12 {
			t.Errorf("Log(%g) = %v; want %v", v, got, want)
		}
	}
}

// A common multiple that is too large is recognized, whether or not it fits into an integer.
func TestLCM(t *testing.T) {
	for _, c := range []struct{ a, b, want int64 }{
		{60, 60, 60}, {60, 7, 420}, {10, 15, 30}, {MaxStep, MaxStep, MaxStep}, {MaxStep - 1, MaxStep, MaxStep + 1}, {1<<62 + 1, 1 << 62, MaxStep + 1}, {0, 0, MaxStep + 1},
	} {
		if got := LCM(c.a, c.b); got != c.want && (c.want <= MaxStep || got <= MaxStep) {
			t.Errorf("LCM(%d, %d) = %d; want %d", c.a, c.b, got, c.want)
		}
	}
}

// A row or a series without values has every percentile, and it is null.
func TestPercentileOfNothing(t *testing.T) {
	for _, values := range [][]float64{nil, {Null, Null}} {
		if v, ok := Percentile(values, 95, false); !ok || !IsNull(v) {
			t.Errorf("the percentile of %v is %v, %v", values, v, ok)
		}
	}
}

// Hits before the first bucket and after the last one are dropped.
func TestHitsOutsideOfBuckets(t *testing.T) {
	sums := make([]float64, 2)
	Buckets{Start: 100, Interval: 20}.Spread(sums, []float64{1, 2, 3, 4, 5, 6}, 80, 10)
	if sums[0] != 70 || sums[1] != 110 {
		t.Errorf("got %v", sums)
	}
	Buckets{Start: 100, Interval: 20}.Spread(sums, []float64{1, 2, 3, 4, 5, 6}, 120, 10)
	if !IsNull(sums[0]) || sums[1] != 30 {
		t.Errorf("got %v", sums)
	}
}
