package quantile

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// TestStop: whoever ranges over values may stop at each of them.
func TestStop(t *testing.T) {
	s := Of(1, 10, 10, 100, 1000)
	var all []float64
	for v := range s.Values(1, 1000) {
		all = append(all, v)
	}
	if len(all) != 4 || all[0] != 1 || all[3] != 1000 {
		t.Fatalf("values %v", all)
	}
	for stop := range all {
		var got []float64
		for v := range s.Values(1, 1000) {
			if got = append(got, v); len(got) > stop {
				break
			}
		}
		if !slices.Equal(got, all[:stop+1]) {
			t.Errorf("%v before a stop at %d", got, stop)
		}
	}
}

// TestBuilderAgain: a builder that was reset has nothing of what it had, and a sketch that it has
// made stays as it is. It adds many numbers, since it sorts some hundred at a time.
func TestBuilderAgain(t *testing.T) {
	var b Builder
	numbers := func(n int, factor float64) (all []float64) {
		for i := range n {
			all = append(all, factor*float64(i+1))
		}
		return all
	}
	for _, n := range []int{1, freshMax - 1, freshMax, freshMax + 1, 3*freshMax + 7} {
		b.Reset()
		if s := b.Sketch(); s != "" {
			t.Errorf("after a reset there are %d numbers", s.Count())
		}
		for _, v := range numbers(n, 1) {
			b.Add(v)
		}
		first := b.Sketch()
		kept := Sketch(slices.Clone([]byte(first)))
		b.Reset()
		for _, v := range numbers(n, -7) {
			b.Add(v)
		}
		second := b.Sketch()
		if first != kept || first.Count() != int64(n) || first.At(int64(n), 1, float64(n)) != float64(n) {
			t.Errorf("%d numbers: the sketch has %d, and changes with its builder: %v", n, first.Count(), first != kept)
		}
		if low := -7 * float64(n); second.Count() != int64(n) || second.At(1, low, -7) != low {
			t.Errorf("%d numbers after a reset: the sketch has %d", n, second.Count())
		}
		b.AddSketch(first)
		if both := b.Sketch(); both != Merge(second, first) || both.Count() != int64(2*n) {
			t.Errorf("%d numbers and a sketch: %d", n, both.Count())
		}
	}
}

// TestRepresentatives: what stands for a bin is as far from the bin's one end as from its other.
func TestRepresentatives(t *testing.T) {
	for in := range perOctave {
		low, high := 1+float64(lowers[in])/(1<<52), 1+float64(lowers[in+1])/(1<<52)
		v := valueOf(int32(oneBin + in))
		if below, above := v/low-1, 1-v/high; math.Abs(below-above) > 1e-15 || below > RelativeError {
			t.Errorf("bin %d from %v to %v: %v, %v above its begin, %v below its end", in, low, high, v, below, above)
		}
	}
}

// TestParseBounds: bins at both ends are taken, and those behind them are not.
func TestParseBounds(t *testing.T) {
	for _, s := range []Sketch{Of(math.Inf(1)), Of(math.Inf(-1)), Of(math.Inf(-1), math.Inf(1)), Of(0), Of(math.MaxFloat64, -math.MaxFloat64)} {
		if got, err := Parse([]byte(s)); got != s || err != nil {
			t.Errorf("%x: %v", s, err)
		}
	}
	encoded := func(first int64, gap int64) []byte {
		b := Builder{bins: []bin{{int32(first), 1}}}
		if gap > 0 {
			b.bins = append(b.bins, bin{int32(first + gap), 1})
		}
		return []byte(b.Sketch())
	}
	far := func(first uint64) []byte { // a bin that no integer of the reader can hold
		return append(binary.AppendUvarint(nil, first), 0)
	}
	behind := func(gap uint64) []byte { return binary.AppendUvarint([]byte(Of(1)), gap<<1) }
	for _, bad := range [][]byte{
		encoded(topBin+1, 0), encoded(-topBin-1, 0), encoded(topBin, 1), encoded(-topBin, 2*topBin+1),
		far(4*topBin + 1), far(4*topBin + 2), far(1 << 33), far(math.MaxUint64), behind(2 * topBin), behind(1 << 32), behind(math.MaxUint64 >> 1),
	} {
		if s, err := Parse(bad); err == nil {
			t.Errorf("%x is taken for a sketch of %d numbers", bad, s.Count())
		}
	}
}
