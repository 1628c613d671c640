package buckets

import (
	"math"
	"math/rand/v2"
	"slices"
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

// TestSentAgain: a part of a bucket replaces an older one only if both are of the same samples.
func TestSentAgain(t *testing.T) {
	type s struct {
		ms int64
		v  float64
	}
	of := func(samples ...s) (a model.Aggregate) {
		for _, one := range samples {
			a.Add(one.ms, one.v)
		}
		return a
	}
	inf := math.Inf(1)
	for _, c := range []struct {
		old, part model.Aggregate
		want      bool
	}{
		{of(s{1, 5}), of(s{1, 5}), true},
		{of(s{1, 5}), of(s{1, 6}), true}, // the only sample, corrected
		{of(s{1, 5}), of(s{2, 5}), false},
		{of(s{1, 5}, s{2, 7}), of(s{1, 5}, s{2, 7}), true},
		{of(s{1, 5}, s{2, 7}), of(s{2, 7}), false},
		{of(s{1, 5}, s{3, 7}), of(s{2, 6}, s{3, 7}), false},                                     // least
		{of(s{1, 5}, s{3, 4}), of(s{2, 6}, s{3, 4}), false},                                     // greatest
		{of(s{1, 1}, s{2, 9}, s{4, 5}), of(s{1, 9}, s{3, 1}, s{4, 6}), false},                   // last
		{of(s{1, 1}, s{2, 9}, s{4, 5}, s{5, 5}), of(s{1, 1}, s{2, 9}, s{3, 6}, s{5, 5}), false}, // sum
		{of(s{1, 0.1}, s{2, 0.2}, s{3, 0.3}), of(s{3, 0.3}, s{2, 0.2}, s{1, 0.1}), true},
		{of(s{1, inf}, s{2, 1}), of(s{1, inf}, s{2, 1}), true},
	} {
		if got := sentAgain(&c.old, &c.part); got != c.want {
			t.Errorf("%+v and then %+v: %v", c.old, c.part, got)
		}
	}
}

// TestPartsSentAgain: what some parts that follow each other are of is sent again, in parts cut
// elsewhere. No sample is counted twice.
func TestPartsSentAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var reader Reader
	add := func(all []float64, from, to int) {
		var part model.Aggregate
		for ; from < to; from++ {
			part.Add(int64(from), all[from])
		}
		reader.add(part)
	}
	// cut cuts a range in up to so many parts.
	cut := func(from, to, most int) []int {
		ends := []int{from, to}
		for range r.IntN(most) {
			ends = append(ends, from+r.IntN(to-from))
		}
		slices.Sort(ends)
		return slices.Compact(ends)
	}
	for range 3000 {
		reader.parts = reader.parts[:0]
		all := make([]float64, 2+r.IntN(30))
		var want model.Aggregate
		for i := range all {
			all[i] = r.Float64()
			want.Add(int64(i), all[i])
		}
		first := cut(0, len(all), 7)
		for i := range first[1:] {
			add(all, first[i], first[i+1])
		}
		from := r.IntN(len(first) - 1)
		to := from + 1 + r.IntN(len(first)-1-from)
		again := cut(first[from], first[to], 4)
		for i := range again[1:] {
			add(all, again[i], again[i+1])
		}
		got := merged(reader.parts...)
		if math.Abs(got.Sum-want.Sum) > 1e-9 {
			t.Fatalf("of %d samples in parts that end at %v, and again at %v: %+v, want %+v", len(all), first, again, got, want)
		}
		if got.Sum = want.Sum; got != want {
			t.Fatalf("of %d samples in parts that end at %v, and again at %v: %+v, want %+v", len(all), first, again, got, want)
		}
	}
}
