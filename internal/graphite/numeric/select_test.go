package numeric

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// lists are values in orders that lead to good and to bad pivots.
func lists(n int) map[string][]float64 {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	out := map[string][]float64{}
	for name, value := range map[string]func(i int) float64{
		"ascending":  func(i int) float64 { return float64(i) },
		"descending": func(i int) float64 { return float64(-i) },
		"equal":      func(int) float64 { return 7 },
		"few":        func(int) float64 { return float64(random.IntN(3)) },
		"organ pipe": func(i int) float64 { return float64(min(i, n-i)) },
		"random":     func(int) float64 { return random.NormFloat64() },
		"saw":        func(i int) float64 { return float64(i % 17) },
	} {
		values := make([]float64, n)
		for i := range values {
			values[i] = value(i)
		}
		out[name] = values
	}
	return out
}

// The n-th value is that of the sorted list, and is between the smaller and the greater ones.
func TestNth(t *testing.T) {
	for _, size := range []int{1, 2, 31, 32, 33, 100, 1000, 5001} {
		for name, values := range lists(size) {
			sorted := slices.Sorted(slices.Values(values))
			for _, n := range []int{0, 1, size / 3, size / 2, size - 2, size - 1} {
				if n < 0 || n >= size {
					continue
				}
				moved := slices.Clone(values)
				if got := nth(moved, n); got != sorted[n] || got != moved[n] {
					t.Fatalf("%d of %d values that are %s: %v, want %v", n, size, name, got, sorted[n])
				}
				if slices.Max(moved[:n+1]) > sorted[n] || slices.Min(moved[n:]) < sorted[n] {
					t.Fatalf("%d of %d values that are %s: others are on the wrong side", n, size, name)
				}
				if slices.Sort(moved); !slices.Equal(moved, sorted) {
					t.Fatalf("%d of %d values that are %s: these are other values", n, size, name)
				}
			}
		}
	}
}

// Sorting in blocks gives a sorted list, and ends with an error of check.
func TestSortChecked(t *testing.T) {
	for _, size := range []int{0, 1, sortBlock, sortBlock + 1, 5*sortBlock + 3} {
		for name, values := range lists(size) {
			got, err := sortChecked(slices.Clone(values), never)
			if err != nil || !slices.Equal(got, slices.Sorted(slices.Values(values))) {
				t.Fatalf("%d values that are %s: %v", size, name, err)
			}
		}
	}
	enough := errors.New("enough")
	for most := range 14 { // 5 blocks, then 4 merges
		checks := 0
		_, err := sortChecked(make([]float64, 5*sortBlock), func() error {
			if checks++; checks > most {
				return enough
			}
			return nil
		})
		if err != enough || checks != most+1 {
			t.Errorf("%v after %d checks, want %d", err, checks, most+1)
		}
	}
}

func BenchmarkMedian(b *testing.B) {
	values := lists(1 << 20)["random"]
	for b.Loop() {
		Median(values)
	}
}
