package numeric

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// longWindow is a length of windows that are not folded one value after the other.
const longWindow = sequentialMax + 3

// exactly is an aggregation of finite values with as many digits as are needed.
func exactly(name string, values []float64) float64 {
	number := func() *big.Float { return new(big.Float).SetPrec(1100) }
	sum, first, product := number(), number(), number().SetInt64(1)
	for i, v := range values {
		sum.Add(sum, number().SetFloat64(v))
		if name == "multiply" {
			product.SetPrec(256).Mul(product, number().SetFloat64(v))
		}
		if i == 0 {
			first.SetFloat64(v)
		}
	}
	switch n := number().SetInt64(int64(len(values))); name {
	case "multiply":
		sum = product
	case "average":
		sum.Quo(sum, n)
	case "diff":
		sum.Sub(first, sum.Sub(sum, first))
	case "stddev":
		mean, squares := sum.Quo(sum, n), number()
		for _, v := range values {
			distance := number().SetFloat64(v)
			distance.Sub(distance, mean)
			squares.Add(squares, distance.Mul(distance, distance))
		}
		sum = squares.Sqrt(squares.Quo(squares, n))
	}
	v, _ := sum.Float64()
	return v
}

// Differences, products and deviations of long windows are wrong in the last digit at most,
// also if the values cancel each other, and after values that would swallow all others.
func TestLongWindowsAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for kind, value := range map[string]func(i int) float64{
		"decimals":  func(int) float64 { return float64(random.IntN(100000)) / 100 },
		"negative":  func(int) float64 { return random.NormFloat64() },
		"near 1":    func(int) float64 { return 1 + random.NormFloat64()/1000 },
		"a little":  func(int) float64 { return 1e15 + float64(random.IntN(8)) },
		"drift":     func(i int) float64 { return 1e9*float64(i) + random.Float64() },
		"constant":  func(int) float64 { return 0.1 },
		"one large": func(i int) float64 { return random.Float64() + map[bool]float64{i == 700: 1e140}[true] },
		"sizes":     func(int) float64 { return math.Ldexp(random.Float64()-0.5, random.IntN(40)-20) },
	} {
		values := make([]float64, 3*longWindow)
		for i := range values {
			if values[i] = value(i); random.IntN(10) == 0 {
				values[i] = Null
			}
		}
		for _, name := range []string{"sum", "average", "diff", "multiply", "stddev"} {
			out := make([]float64, len(values)-longWindow)
			if err := Windows(out, values, longWindow, name, 0, never); err != nil {
				t.Fatal(err)
			}
			if name == "multiply" && kind != "near 1" {
				continue // 0 or infinite, see TestLongWindowsLikeGraphite
			}
			for _, i := range []int{0, 699, 700, longWindow - 1, longWindow, len(out) - 1} {
				want := exactly(name, present(values[i+1:i+1+longWindow]))
				if math.Abs(out[i]-want) > 4e-16*math.Abs(want) {
					t.Errorf("%s of %s: %v at %d, want %v", name, kind, out[i], i, want)
				}
			}
		}
	}
}

// What is infinite, 0 or null in Graphite is so in long windows, too.
func TestLongWindowsLikeGraphite(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	seldom := func(n int, v, other float64) float64 {
		if random.IntN(n) == 0 {
			return v
		}
		return other
	}
	sign := func() float64 { return math.Copysign(1, random.Float64()-0.5) }
	for kind, value := range map[string]func(i int) float64{
		"large":              func(int) float64 { return sign() * (1 + 5*random.Float64()) },
		"small":              func(int) float64 { return sign() * random.Float64() / 3 },
		"zeros":              func(int) float64 { return seldom(5000, 0, sign()) },
		"negative zeros":     func(int) float64 { return math.Copysign(0, random.Float64()-0.5) },
		"zeros and large":    func(int) float64 { return seldom(2000, 0, seldom(2, 1, 2)) },
		"infinities":         func(int) float64 { return seldom(9000, math.Inf(int(sign())), sign()) },
		"infinity and zero":  func(int) float64 { return seldom(9000, math.Inf(1), seldom(9000, 0, 1)) },
		"infinity and small": func(int) float64 { return seldom(9000, math.Inf(1), seldom(2, 1, 0.3)) },
		"up and down":        func(i int) float64 { return []float64{1.5, 0.25}[i/2000%2] },
		"down and up":        func(i int) float64 { return []float64{0.25, 1.5}[i/2000%2] },
		"sums that overflow": func(int) float64 { return 1e306 },
		"overflow once":      func(i int) float64 { return seldom(9000, 1e307, float64(i%7)) },
		"squares overflow":   func(int) float64 { return sign() * 1e160 },
		"gap": func(i int) float64 {
			if i > 2000 && i < 2000+longWindow+500 {
				return Null
			}
			return 3
		},
	} {
		values := make([]float64, 3*longWindow+100)
		for i := range values {
			if values[i] = value(i); random.IntN(10) == 0 {
				values[i] = Null
			}
		}
		for _, name := range []string{"sum", "average", "diff", "multiply", "stddev"} {
			for _, xFilesFactor := range []float64{0, 0.5} {
				got := make([]float64, len(values)-longWindow)
				if err := Windows(got, values, longWindow, name, xFilesFactor, never); err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(got); i += 37 + i%97 {
					want := windowsEach(values[i:i+1+longWindow], longWindow, name, xFilesFactor)[0]
					if name != "multiply" && name != "stddev" && !math.IsInf(got[i], 0) && !math.IsInf(want, 0) && IsNull(got[i]) == IsNull(want) {
						continue // what Graphite has rounded may be all that is left
					}
					same := got[i] == want || IsNull(got[i]) && IsNull(want) || math.Abs(got[i]-want) <= 1e-11*math.Abs(want) ||
						math.Abs(want) < 0x1p-1022 && got[i] == 0
					if !same || want == 0 && name == "multiply" && math.Signbit(got[i]) != math.Signbit(want) {
						t.Fatalf("%s of %s: %v at %d, want %v", name, kind, got[i], i, want)
					}
				}
			}
		}
	}
}

// The last value of a long window may be the one that makes its product infinite.
func TestLastValueOverflows(t *testing.T) {
	values := make([]float64, longWindow+1)
	Fill(values, 1)
	copy(values[1:], []float64{1e-310, 1e300, 1e300}) // after so small a product, it is made value by value
	values[longWindow] = 1e150
	got := make([]float64, 1)
	if err := Windows(got, values, longWindow, "multiply", 0, never); err != nil || !math.IsInf(got[0], 1) {
		t.Errorf("got %v, %v", got, err)
	}
}

// A long window takes as many steps as there are values, so that a year of minutes by a month is no
// different from an hour by a minute.
func TestLongWindowsTakeFewSteps(t *testing.T) {
	values := make([]float64, 1<<17)
	for kind, value := range map[string]func(i int) float64{
		"decimals": func(i int) float64 { return 0.1 + float64(i%7) },
		"near 1":   func(i int) float64 { return 1 + float64(i%7-3)/10000 },
		"zeros":    func(i int) float64 { return float64(i % 5) },
	} {
		for i := range values {
			values[i] = value(i)
		}
		for _, name := range []string{"diff", "multiply", "stddev"} {
			const points = 1 << 16
			checks := 0
			err := Windows(make([]float64, len(values)-points), values, points, name, 0, func() error {
				if checks++; checks > 16 {
					return fmt.Errorf("%s of %s takes too long", name, kind)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func BenchmarkLongWindows(b *testing.B) {
	values := make([]float64, 60_000)
	for i := range values {
		values[i] = 0.1 + float64(i%7)
	}
	for _, name := range []string{"sum", "diff", "multiply", "stddev"} {
		b.Run("by="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := Windows(make([]float64, 30_000), values, 30_000, name, 0, never); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
