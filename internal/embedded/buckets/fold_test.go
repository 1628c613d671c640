package buckets

import (
	"math"
	"testing"

	"varve/internal/model"
)

func TestTidySums(t *testing.T) {
	sum := func(values ...float64) float64 {
		var a model.Aggregate
		for i, v := range values {
			a.Add(int64(i), v)
		}
		return tidy(a)
	}
	pi, e := math.Pi, math.E // added as doubles
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{0.1, 0.2}, 0.3},
		{[]float64{49.99, 50.13, 48.2, 51.01, 50.5, 50.3}, 300.13},
		{[]float64{-0.7, 0.1, 0.2}, -0.4},
		{[]float64{1, 2, 3}, 6},
		{[]float64{1 - 0x1p-53}, 1 - 0x1p-53},
		{[]float64{pi, e}, pi + e},
		{[]float64{1e300, 1e300}, 2e300},
		{[]float64{1e-300, 2e-300}, 1e-300 + 2e-300},
		{[]float64{1 << 53, 1}, 1 << 53},
		{[]float64{math.Inf(1), 1}, math.Inf(1)},
	} {
		if got := sum(c.values...); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
	if got := sum(math.Inf(1), math.Inf(-1)); got == got {
		t.Errorf("of both infinities: %v", got)
	}
}
