package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Max, Min and Sum are those of the built-in functions, value by value.
func TestMaxMinSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	awkward := []float64{0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 5e-324, -5e-324, 1e308}
	for range 20_000 {
		n := 1 + rng.IntN(9)
		doubles, longs := make([]uint64, n), make([]uint64, n)
		choice := 1 + rng.IntN(len(awkward))
		for i := range n {
			doubles[i] = math.Float64bits(awkward[rng.IntN(choice)])
			longs[i] = uint64(rng.Int64N(9)-4) << rng.IntN(64)
		}
		for kind, values := range map[Kind][]uint64{Double: doubles, Long: longs} {
			low, top, sum := Float(kind, values[0]), Float(kind, values[0]), 0.0
			for _, v := range values {
				f := Float(kind, v)
				low, top, sum = min(low, f), max(top, f), sum+f
			}
			for what, pair := range map[string][2]float64{"min": {Min(kind, values), low}, "max": {Max(kind, values), top}, "sum": {Sum(kind, values), sum}} {
				if got, want := pair[0], pair[1]; math.Float64bits(got) != math.Float64bits(want) && (got == got || want == want) {
					t.Fatalf("%s of %x: %v, want %v", what, values, got, want)
				}
			}
		}
	}
}
