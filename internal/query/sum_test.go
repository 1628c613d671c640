package query

import (
	"math"
	"testing"

	"varve/internal/model"
)

// A sum is infinite only if the whole is, and so is a mean.
func TestSumsDoNotOverflowOnTheWay(t *testing.T) {
	const large = 1.5e308
	for _, tt := range []struct {
		in        []float64
		sum, mean float64
	}{
		{[]float64{large, large, -large}, large, large / 3},
		{[]float64{large, large, -large, -large, 3}, 3, 3.0 / 5},
		{[]float64{-large, -large, -large}, math.Inf(-1), -large},
		{[]float64{large, large, 5}, math.Inf(1), large / 3 * 2},
		{[]float64{large, math.Inf(1), -large}, math.Inf(1), math.Inf(1)},
		{[]float64{math.Inf(-1), large, large, large}, math.Inf(-1), math.Inf(-1)},
		{[]float64{math.Inf(1), large, 1, math.Inf(-1)}, math.NaN(), math.NaN()},
		{[]float64{large, large, math.NaN(), math.Inf(1)}, math.NaN(), math.NaN()},
		{[]float64{math.Copysign(0, -1)}, 0, 0},
		{[]float64{math.SmallestNonzeroFloat64, 2 * math.SmallestNonzeroFloat64, 0}, 3 * math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat64},
	} {
		var one, run, left, right Sum
		bits := make([]uint64, len(tt.in))
		for i, v := range tt.in {
			one.Add(v)
			bits[i] = math.Float64bits(v)
		}
		run.AddRun(model.Double, bits)
		left.AddRun(model.Double, bits[:len(bits)/2])
		right.AddRun(model.Double, bits[len(bits)/2:])
		left.AddSum(&right)
		for how, s := range map[string]*Sum{"one by one": &one, "a run": &run, "two halves": &left} {
			if total, mean := s.Total(), s.Mean(int64(len(tt.in))); !near(total, tt.sum) || !near(mean, tt.mean) {
				t.Errorf("%v, %s: sum %v, mean %v, want %v, %v", tt.in, how, total, mean, tt.sum, tt.mean)
			}
		}
	}
}

func near(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-15*math.Abs(b)
}
