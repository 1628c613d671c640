package quantile

import (
	"encoding/binary"
	"slices"
)

// A Builder makes a sketch of numbers and of other sketches. The zero value is empty. It is
// not safe for concurrent use.
type Builder struct {
	bins  []bin   // ascending
	fresh []int32 // bins of numbers that are not among bins yet
	more  []bin   // scratch
	spare []bin
	bytes []byte
}

type bin struct {
	bin   int32
	count int64
}

// freshMax is how many numbers are sorted at once.
const freshMax = 512

// Reset forgets all numbers and keeps the memory.
func (b *Builder) Reset() { b.bins, b.fresh = b.bins[:0], b.fresh[:0] }

// Add counts a number, unless it is NaN.
func (b *Builder) Add(v float64) {
	if v != v {
		return
	}
	if b.fresh = append(b.fresh, binOf(v)); len(b.fresh) == freshMax {
		b.settle()
	}
}

// AddSketch counts all numbers of a sketch.
func (b *Builder) AddSketch(s Sketch) {
	b.more = b.more[:0]
	for r := (reader{rest: s}); r.next(); {
		b.more = append(b.more, bin{r.bin, r.count})
	}
	b.merge()
}

// Sketch returns the sketch of all numbers, "" if there is none.
func (b *Builder) Sketch() Sketch {
	b.settle()
	dst := b.bytes[:0]
	for i, one := range b.bins {
		if i == 0 {
			from := int64(one.bin) - oneBin
			dst = binary.AppendUvarint(dst, uint64(from<<1^from>>63))
			dst = binary.AppendUvarint(dst, uint64(one.count-1))
			continue
		}
		gap := uint64(one.bin - b.bins[i-1].bin - 1)
		if one.count == 1 {
			dst = binary.AppendUvarint(dst, gap<<1)
			continue
		}
		dst = binary.AppendUvarint(dst, gap<<1|1)
		dst = binary.AppendUvarint(dst, uint64(one.count-2))
	}
	b.bytes = dst
	return Sketch(dst)
}

// settle moves the fresh numbers into bins.
func (b *Builder) settle() {
	if len(b.fresh) == 0 {
		return
	}
	slices.Sort(b.fresh)
	b.more = b.more[:0]
	for _, at := range b.fresh {
		if n := len(b.more); n > 0 && b.more[n-1].bin == at {
			b.more[n-1].count++
			continue
		}
		b.more = append(b.more, bin{at, 1})
	}
	b.fresh = b.fresh[:0]
	b.merge()
}

// merge moves b.more into bins, and merges the lowest bins if there are more than MaxBins.
func (b *Builder) merge() {
	x, y := b.bins, b.more
	if len(x) == 0 {
		b.bins, b.more = y, x
	} else {
		b.spare = appendMerged(b.spare[:0], x, y)
		b.bins, b.spare = b.spare, x
	}
	if over := len(b.bins) - MaxBins; over > 0 {
		least := &b.bins[over]
		for _, low := range b.bins[:over] {
			least.count = plus(least.count, low.count)
		}
		b.bins = slices.Delete(b.bins, 0, over)
	}
}

// appendMerged appends the bins of both, ascending, with equal ones added up.
func appendMerged(dst, x, y []bin) []bin {
	for len(x) > 0 && len(y) > 0 {
		switch {
		case x[0].bin < y[0].bin:
			dst, x = append(dst, x[0]), x[1:]
		case x[0].bin > y[0].bin:
			dst, y = append(dst, y[0]), y[1:]
		default:
			dst = append(dst, bin{x[0].bin, plus(x[0].count, y[0].count)})
			x, y = x[1:], y[1:]
		}
	}
	return append(append(dst, x...), y...)
}

// plus adds counts, up to maxCount. Only a forged file reaches that.
func plus(x, y int64) int64 { return min(x+y, maxCount) }
