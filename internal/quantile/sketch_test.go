package quantile

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// A distribution makes numbers as they are met in practice, or as they are hard.
type distribution struct {
	name string
	next func(r *rand.Rand) float64
}

var distributions = []distribution{
	{"constant", func(*rand.Rand) float64 { return 42.5 }},
	{"uniform", func(r *rand.Rand) float64 { return r.Float64() * 1000 }},
	{"normal", func(r *rand.Rand) float64 { return r.NormFloat64() * 20 }},
	{"exponential", func(r *rand.Rand) float64 { return r.ExpFloat64() * 30 }},
	{"lognormal", func(r *rand.Rand) float64 { return math.Exp(3 + r.NormFloat64()/2) }},
	{"pareto", func(r *rand.Rand) float64 { return math.Pow(r.Float64(), -2) }},
	{"two peaks", func(r *rand.Rand) float64 { return float64(1+999*r.IntN(2)) + r.Float64() }},
	{"whole", func(r *rand.Rand) float64 { return float64(r.IntN(50)) }},
	{"mostly zero", func(r *rand.Rand) float64 { return float64(max(0, r.IntN(20)-15)) }},
	{"negative", func(r *rand.Rand) float64 { return -math.Exp(r.NormFloat64() * 3) }},
	{"huge and tiny", func(r *rand.Rand) float64 { return math.Ldexp(r.Float64()-0.5, r.IntN(5)*480-1000) }},
}

// within reports whether a value is as near to a number as promised.
func within(got, want float64) bool {
	return got == want || math.Abs(got-want) <= RelativeError*math.Abs(want)
}

// TestError compares values of all ranks with the numbers themselves.
func TestError(t *testing.T) {
	for _, d := range distributions {
		worst := 0.0
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 1))
			numbers := make([]float64, 1+r.IntN(3000))
			for i := range numbers {
				numbers[i] = d.next(r)
			}
			s := Of(numbers...)
			slices.Sort(numbers)
			low, high := numbers[0], numbers[len(numbers)-1]
			if s.Count() != int64(len(numbers)) {
				t.Fatalf("%s: %d numbers, want %d", d.name, s.Count(), len(numbers))
			}
			if s.At(1, low, high) != low || s.At(int64(len(numbers)), low, high) != high {
				t.Errorf("%s: the least and the greatest number are not exact", d.name)
			}
			at := 0
			for v, n := range s.Values(low, high) {
				for range n {
					if !within(v, numbers[at]) {
						t.Fatalf("%s: rank %d of %d: %v, want %v", d.name, at+1, len(numbers), v, numbers[at])
					}
					if numbers[at] != 0 {
						worst = max(worst, math.Abs(v/numbers[at]-1))
					}
					at++
				}
			}
			if at != len(numbers) {
				t.Fatalf("%s: values of %d numbers, want %d", d.name, at, len(numbers))
			}
		}
		t.Logf("%-14s worst relative error %.5f", d.name, worst)
	}
}

// TestMergeOrder makes one sketch of parts in many orders, also where bins collapse.
func TestMergeOrder(t *testing.T) {
	wide := distribution{"more bins than a sketch has", func(r *rand.Rand) float64 {
		return math.Ldexp(1+r.Float64(), r.IntN(200)-100) * float64(1-2*r.IntN(2))
	}}
	for _, d := range append(slices.Clone(distributions), wide) {
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 2))
			numbers := make([]float64, 20_000)
			for i := range numbers {
				numbers[i] = d.next(r)
			}
			want := Of(numbers...)
			r.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
			var parts []Sketch
			for from := 0; from < len(numbers); {
				to := min(len(numbers), from+1+r.IntN(4000))
				parts = append(parts, Of(numbers[from:to]...))
				from = to
			}
			for len(parts) > 1 {
				i := r.IntN(len(parts) - 1)
				parts[i] = Merge(parts[i], parts[i+1])
				parts = slices.Delete(parts, i+1, i+2)
			}
			if parts[0] != want {
				t.Fatalf("%s, seed %d: merged in parts, the sketch is another one", d.name, seed)
			}
			if n := bins(want); n > MaxBins || d.name == wide.name && n != MaxBins {
				t.Errorf("%s: %d bins", d.name, n)
			}
		}
	}
}

func bins(s Sketch) (n int) {
	for r := (reader{rest: s}); r.next(); n++ {
	}
	return n
}

// TestCollapse: the lowest bins become one, and the higher ones stay exact.
func TestCollapse(t *testing.T) {
	var b Builder
	var numbers []float64
	for i := range 3000 {
		v := math.Pow(2, float64(i)/perOctave*1.0001)
		numbers = append(numbers, v)
		b.Add(v)
	}
	s := b.Sketch()
	low, high := numbers[0], numbers[len(numbers)-1]
	for rank := 3000 - MaxBins + 1; rank <= 3000; rank++ {
		if got := s.At(int64(rank), low, high); !within(got, numbers[rank-1]) {
			t.Fatalf("rank %d: %v, want %v", rank, got, numbers[rank-1])
		}
	}
	if got, least := s.At(5, low, high), numbers[3000-MaxBins]; !within(got, least) {
		t.Errorf("rank 5: %v, want that of the lowest bin, %v", got, least)
	}
}

// TestOddNumbers: what is no number is not counted; infinities and zeros are exact.
func TestOddNumbers(t *testing.T) {
	inf := math.Inf(1)
	if s := Of(math.NaN()); s != "" || s.Count() != 0 {
		t.Errorf("of NaN: %q", s)
	}
	s := Of(inf, math.NaN(), -inf, 0, math.Copysign(0, -1), 5e-324, -5e-324, 1, math.MaxFloat64, -math.MaxFloat64, inf)
	var got []string
	for v, n := range s.Values(-inf, inf) {
		got = append(got, fmt.Sprintf("%.3g*%d", v, n))
	}
	if want := "-Inf*1 -1.78e+308*1 0*4 1.01*1 1.78e+308*1 +Inf*1 +Inf*1"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}

// TestBins computes where bins begin with many digits, and finds each end of a bin in it.
func TestBins(t *testing.T) {
	// The 35th root of two, by bisection: no arithmetic of doubles has a part in it.
	const digits = 400
	root := func() *big.Float {
		low, high := big.NewFloat(1).SetPrec(digits), big.NewFloat(2).SetPrec(digits)
		for range 300 {
			middle := new(big.Float).SetPrec(digits).Add(low, high)
			middle.Quo(middle, big.NewFloat(2))
			power := big.NewFloat(1).SetPrec(digits)
			for range perOctave {
				power.Mul(power, middle)
			}
			if power.Cmp(big.NewFloat(2)) < 0 {
				low = middle
			} else {
				high = middle
			}
		}
		return low
	}()
	power := big.NewFloat(1).SetPrec(digits)
	for i, got := range lowers {
		scaled := new(big.Float).SetPrec(digits).Sub(power, big.NewFloat(1))
		scaled.SetMantExp(scaled, 52)
		want, _ := scaled.Add(scaled, big.NewFloat(0.5)).Uint64()
		if got != want && i < perOctave {
			t.Errorf("bin %d begins at %#x, want %#x", i, got, want)
		}
		power.Mul(power, root)
	}
	for _, exponent := range []int{-1022, -500, -1, 0, 1, 10, 1023} {
		for i := range perOctave {
			first := math.Ldexp(1+float64(lowers[i])/(1<<52), exponent)
			last := math.Nextafter(math.Ldexp(1+float64(lowers[i+1])/(1<<52), exponent), 0)
			if exponent == 1023 && i == perOctave-1 {
				last = math.MaxFloat64
			}
			at := binOf(first)
			if binOf(last) != at || binOf(-first) != -at || exponent > -1022 && binOf(math.Nextafter(first, 0)) != at-1 {
				t.Fatalf("bin %d of 2^%d has %v, but not only the numbers up to %v", i, exponent, first, last)
			}
			if v := valueOf(at); binOf(v) != at || !within(v, first) || !within(v, last) || valueOf(-at) != -v {
				t.Fatalf("%v stands for the numbers from %v to %v", v, first, last)
			}
		}
	}
	if binOf(1) != oneBin || binOf(math.Inf(1)) != topBin {
		t.Errorf("bins of 1 and of infinity: %d, %d", binOf(1), binOf(math.Inf(1)))
	}
}

// TestGolden compares sketches with those that earlier builds made: they are on disk.
func TestGolden(t *testing.T) {
	want, err := os.ReadFile("testdata/sketches.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, numbers := range [][]float64{
		{1}, {0}, {1, 1}, {1, 2, 4}, {-1, 0, 1}, {0.1, 0.1, 0.2, 250}, {math.Inf(-1), math.Inf(1)},
		{1e-308, math.MaxFloat64}, {12.5, 13, 13.1, 19, 44, 250}, {-5, -5, -5, -7},
	} {
		fmt.Fprintf(&got, "%v %x\n", numbers, string(Of(numbers...)))
	}
	if got.String() != string(want) {
		t.Errorf("sketches:\n%s\nwant:\n%s", got.String(), want)
	}
}

// FuzzParse: any bytes are refused, or are the one form of a sketch.
func FuzzParse(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{0})
	f.Add([]byte{0x80, 0})
	f.Add([]byte(Of(1, 2, 2, 3, -1, 0, math.Inf(1))))
	f.Add([]byte(strings.Repeat("\xff", 30)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		var again Builder
		again.AddSketch(s)
		if again.Sketch() != s {
			t.Fatalf("%x became %x", b, string(again.Sketch()))
		}
		total, last := int64(0), math.Inf(-1)
		for v, n := range s.Values(math.Inf(-1), math.Inf(1)) {
			if n < 1 || v < last {
				t.Fatalf("%d of %v after %v", n, v, last)
			}
			total, last = total+n, v
		}
		if total != s.Count() {
			t.Fatalf("values of %d numbers, want %d", total, s.Count())
		}
		if twice := Merge(s, s); twice.Count() != 2*total && total <= maxCount/2 {
			t.Fatalf("twice %d is %d", total, twice.Count())
		}
	})
}

func TestParseRefuses(t *testing.T) {
	long := Of(1)
	var b strings.Builder
	b.WriteString(string(long))
	for range MaxBins - 1 {
		b.WriteByte(0)
	}
	if _, err := Parse([]byte(b.String())); err != nil {
		t.Errorf("as many bins as there may be: %v", err)
	}
	most := "\x00" + string(binary.AppendUvarint(nil, maxCount-1))
	if maxCount != 1<<53 {
		t.Error("a sketch of 2^53 numbers that another build wrote must be read, and one of more must not")
	}
	if s, err := Parse([]byte(most)); err != nil || s.Count() != 1<<53 {
		t.Errorf("2^53 numbers: %v", err)
	}
	for name, bytes := range map[string]string{
		"nothing": "", "half of a bin": "\x00", "a long form of 0": "\x80\x00\x00", "too many bins": b.String() + "\x00",
		"a bin beyond infinity": "\x80\x80\x80\x01\x00", "a gap beyond infinity": "\x00\x00\xff\xff\xff\x01", "a count of 2^60": "\x00\xff\xff\xff\xff\xff\xff\xff\xff\x0f",
		"a gap without its count": "\x00\x00\x01", "a count of 0 in ten bytes": "\x00\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
		"2^53 + 1 numbers in a bin": "\x00" + string(binary.AppendUvarint(nil, maxCount)), "2^53 + 1 numbers in two bins": most + "\x00",
	} {
		if s, err := Parse([]byte(bytes)); err == nil {
			t.Errorf("%s: %q", name, s)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{6, 360} {
		b.Run(fmt.Sprint("samples=", n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			numbers := make([]float64, n)
			for i := range numbers {
				numbers[i] = distributions[4].next(r)
			}
			var s Builder
			for b.Loop() {
				s.Reset()
				for _, v := range numbers {
					s.Add(v)
				}
				s.Sketch()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/sample")
		})
	}
}
