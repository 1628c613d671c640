package chunk

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// Modes of an integer column, in the low bits of its control byte. The numbers
// are on disk.
const (
	intConst      = 0 // all equal
	intFrame      = 1 // value - base
	intDelta      = 2 // difference - base
	intDelta2     = 3 // difference of differences - base
	intDeltaConst = 4 // all differences equal

	intModeMask   = 0x07
	intExceptions = 0x08 // some packed numbers lack high bits, listed apart
	intHuffman    = 0x10 // high bits are Huffman-coded, low bits packed
	intUnknown    = 0xe0
)

// intPlan is how a column of integers will be written. Arithmetic wraps around, so
// every int64 and every difference of two is exact.
type intPlan struct {
	mode     byte
	first    uint64   // delta modes
	delta    uint64   // intDelta2: first difference; intDeltaConst: the difference
	base     uint64   // subtracted from what is packed
	width    uint     // bits of a packed number
	packed   []uint64 // the numbers, before base is subtracted
	outliers int      // numbers outside [base, base+2^width)

	// The alternative without trimming, for the entropy stage.
	wholeBase  uint64
	wholeWidth uint

	values span
}

// bits estimates the encoded size.
func (p *intPlan) bits() int {
	return 32 + len(p.packed)*int(p.width) + p.outliers*24
}

// outlier is a packed number with bits above the width.
type outlier struct {
	at   int
	high uint64 // zigzag of the signed high bits
}

// span is the smallest and the largest of some numbers, as signed.
type span struct{ min, max int64 }

func (s span) width() uint { return uint(bits.Len64(uint64(s.max) - uint64(s.min))) }

func (s *span) add(v uint64) {
	s.min = min(s.min, int64(v))
	s.max = max(s.max, int64(v))
}

// planInts chooses the cheapest encoding of vals, which has at least one value. The
// plan shares the encoder's scratch until the next call.
func (e *encoder) planInts(vals []uint64) intPlan {
	n := len(vals)
	first := vals[0]
	p := intPlan{mode: intConst, first: first, values: span{int64(first), int64(first)}}
	if n == 1 {
		return p
	}
	deltas := resize(&e.deltas, n-1)
	p.delta = vals[1] - first
	values, diffs := p.values, span{int64(p.delta), int64(p.delta)}
	previous := first
	for i, v := range vals[1:] {
		d := v - previous
		deltas[i] = d
		previous = v
		values.add(v)
		diffs.add(d)
	}
	p.values = values
	switch {
	case values.min == values.max:
		return p
	case diffs.min == diffs.max:
		p.mode = intDeltaConst
		return p
	}

	// Ranges alone mislead: a single reset of a counter makes the range of differences
	// as wide as that of values. So the modes are compared by samples, with outliers
	// set apart.
	frame := e.windowOf(vals, values)
	delta := e.windowOf(deltas, diffs)
	delta2 := e.windowOf2(deltas)
	switch {
	case frame.bits <= delta.bits && frame.bits <= delta2.bits:
		p.mode, p.packed = intFrame, vals
		e.trim(&p, values, frame)
	case delta.bits <= e.handicap(delta2.bits, n):
		p.mode, p.packed = intDelta, deltas
		e.trim(&p, diffs, delta)
	default:
		p.mode = intDelta2
		p.packed = resize(&e.deltas2, len(deltas)-1)
		all := span{math.MaxInt64, math.MinInt64}
		for i := range p.packed {
			d := deltas[i+1] - deltas[i]
			p.packed[i] = d
			all.add(d)
		}
		e.trim(&p, all, delta2)
	}
	return p
}

// handicap raises the cost of second differences if entropy coding follows: they are
// twice as noisy as differences, which affects the coded size but not the width.
func (e *encoder) handicap(bits, n int) int {
	if e.level == Best && n > huffmanMin {
		return bits * 5 / 4
	}
	return bits
}

// sampleSize bounds the numbers that are read to choose a mode and its outliers.
const sampleSize = 256

// window is the range of numbers [low, low+2^width).
type window struct {
	low   uint64
	width uint
	bits  int // estimated size: numbers inside packed, others listed
}

func (w window) holds(v uint64) bool { return (v-w.low)>>w.width == 0 }

// windowOf2 estimates the cheapest window for the differences of deltas.
func (e *encoder) windowOf2(deltas []uint64) window {
	n := len(deltas) - 1
	sample, stride := e.sample[:min(n, sampleSize)], max(1, n/sampleSize)
	all := span{math.MaxInt64, math.MinInt64}
	for i := range sample {
		d := deltas[i*stride+1] - deltas[i*stride]
		sample[i] = d
		all.add(d)
	}
	return e.cheapest(sample, all).scaled(len(sample), n)
}

// windowOf estimates the cheapest window for nums, whose range is all.
func (e *encoder) windowOf(nums []uint64, all span) window {
	n := len(nums)
	if n <= sampleSize {
		return e.cheapest(nums, all)
	}
	stride := n / sampleSize
	for i := range e.sample {
		e.sample[i] = nums[i*stride]
	}
	return e.cheapest(e.sample[:], all).scaled(sampleSize, n)
}

// scaled extrapolates the estimate for m numbers to n.
func (w window) scaled(m, n int) window {
	w.bits = w.bits * n / m
	return w
}

// median returns the median of a sample of five of nums.
func median(nums []uint64) uint64 {
	n := len(nums)
	a, b, c, d, e := int64(nums[0]), int64(nums[n/4]), int64(nums[n/2]), int64(nums[n-1-n/4]), int64(nums[n-1])
	a, b = min(a, b), max(a, b)
	c, d = min(c, d), max(c, d)
	b, c = min(b, d), max(a, c) // neither the smallest nor the largest of four
	b, c = min(b, c), max(b, c)
	return uint64(max(b, min(c, e)))
}

// cheapest returns the window with the lowest cost of packed bits and outliers: either
// all, which contains nums, or [m-2^(width-1), m+2^(width-1)) around their median m.
func (e *encoder) cheapest(nums []uint64, all span) window {
	m := median(nums)
	// Numbers by the width of the smallest window that contains them. Two arrays of
	// counters alternate, since most numbers would otherwise increment the counter that
	// the previous one has just written.
	count, other := &e.widths[0], &e.widths[1] // all zero between calls
	top := 0
	for i := 0; i+1 < len(nums); i += 2 {
		a, b := widthAround(nums[i], m)&127, widthAround(nums[i+1], m)&127
		count[a]++
		other[b]++
		top = max(top, a, b)
	}
	if n := len(nums); n%2 != 0 {
		a := widthAround(nums[n-1], m) & 127
		count[a]++
		top = max(top, a)
	}
	for i := range other[:top+1] {
		count[i] += other[i]
	}
	w := window{low: uint64(all.min), width: all.width()}
	w.bits = int(w.width) * len(nums)
	w.low -= (1<<w.width - 1 - uint64(all.max) + uint64(all.min)) / 2 // room on both sides
	outliers := 0
	for width := top - 1; width >= 0; width-- {
		outliers += int(count[width+1])
		if outliers*16 >= w.bits {
			break
		}
		cost := width * len(nums)
		for o := width + 1; o <= top; o++ {
			cost += int(count[o]) * (8 + (o-width+7)/7*8) // gap and high bits
		}
		if cost < w.bits {
			w = window{low: m - 1<<width>>1, width: uint(width), bits: cost}
		}
	}
	clear(count[:top+1])
	clear(other[:top+1])
	return w
}

// widthAround returns the width of the smallest window around m that contains v: 0 for
// m alone, w for [m-2^(w-1), m+2^(w-1)).
func widthAround(v, m uint64) int {
	d := int64(v - m)
	return bits.Len64(uint64(d^d>>63)<<1 | uint64(d|-d)>>63)
}

// trim sets base and width of p, whose packed numbers lie within all. It lists outliers
// on both sides separately if that is cheaper than widening every number; w is the
// window found for the mode.
func (e *encoder) trim(p *intPlan, all span, w window) {
	p.base, p.width = uint64(all.min), all.width()
	p.wholeBase, p.wholeWidth = p.base, p.width
	if p.width <= 1 {
		return
	}
	if w.width >= p.width {
		return
	}
	// Distances from low are compared as unsigned, since signed values are out of order
	// where the window wraps around.
	least, most := ^uint64(0), uint64(0)
	for _, v := range p.packed {
		if w.holds(v) {
			least, most = min(least, v-w.low), max(most, v-w.low)
		}
	}
	if least > most {
		return
	}
	base, width := w.low+least, uint(bits.Len64(most-least))
	cost := width * uint(len(p.packed))
	outliers := e.outliers[:0]
	for i, v := range p.packed {
		if x := v - base; x>>width != 0 {
			high := zigzag(int64(x) >> width)
			outliers = append(outliers, outlier{at: i, high: high})
			cost += 8 + uint(bits.Len64(high)+6)/7*8
		}
	}
	e.outliers = outliers
	if cost < p.width*uint(len(p.packed)) {
		p.base, p.width, p.outliers = base, width, len(outliers)
	}
}

// appendInts appends vals as an integer column. There must be at least one value.
func (e *encoder) appendInts(dst []byte, vals []uint64) []byte {
	p := e.planInts(vals)
	return e.appendPlan(dst, &p)
}

func (e *encoder) appendPlan(dst []byte, p *intPlan) []byte {
	switch p.mode {
	case intConst:
		return appendVarint(append(dst, intConst), p.first)
	case intDeltaConst:
		dst = appendVarint(append(dst, intDeltaConst), p.first)
		return appendVarint(dst, p.delta)
	}
	if e.level == Best && len(p.packed) >= huffmanMin {
		return e.appendSmallest(dst, p)
	}
	return e.appendPackedPlan(dst, p)
}

// appendIntHead appends the control byte, the width, and the parameters of the mode.
func appendIntHead(dst []byte, p *intPlan, flags byte) []byte {
	dst = append(dst, p.mode|flags, byte(p.width))
	if p.mode != intFrame {
		dst = appendVarint(dst, p.first)
	}
	if p.mode == intDelta2 {
		dst = appendVarint(dst, p.delta)
	}
	return appendVarint(dst, p.base)
}

func (e *encoder) appendPackedPlan(dst []byte, p *intPlan) []byte {
	dst = e.appendHeadAndOutliers(dst, p, 0)
	return appendPacked(dst, p.packed, p.base, p.width)
}

func (e *encoder) appendHeadAndOutliers(dst []byte, p *intPlan, flags byte) []byte {
	if p.outliers == 0 {
		return appendIntHead(dst, p, flags)
	}
	dst = appendIntHead(dst, p, flags|intExceptions)
	dst = binary.AppendUvarint(dst, uint64(p.outliers))
	next := 0
	for _, o := range e.outliers[:p.outliers] {
		dst = binary.AppendUvarint(dst, uint64(o.at-next))
		dst = binary.AppendUvarint(dst, o.high)
		next = o.at + 1
	}
	return dst
}

func appendVarint(dst []byte, v uint64) []byte {
	return binary.AppendUvarint(dst, zigzag(int64(v)))
}

// ints reads an integer column of len(out) numbers. There must be at least one.
func (d *Decoder) ints(r *reader, out []uint64) {
	control := r.u8()
	if control&intUnknown != 0 {
		r.fail("unknown integer column %#x", control)
	}
	switch control {
	case intConst:
		fill(out, uint64(r.varint()), 0)
		return
	case intDeltaConst:
		first := uint64(r.varint())
		fill(out, first, uint64(r.varint()))
		return
	}
	mode, packed := control&intModeMask, out
	width := uint(r.u8())
	if width > 64 {
		r.fail("%d bits per number", width)
	}
	var first, delta uint64
	switch mode {
	case intFrame:
	case intDelta:
		first = uint64(r.varint())
		packed = out[1:]
	case intDelta2:
		first, delta = uint64(r.varint()), uint64(r.varint())
		if len(out) < 2 {
			r.fail("second differences of one number")
			return
		}
		packed = out[2:]
	default:
		r.fail("unknown integer column %#x", control)
	}
	base := uint64(r.varint())
	var outliers []outlier
	if control&intExceptions != 0 {
		outliers = r.outliers(&d.outliers, len(packed), false)
	}
	if control&intHuffman != 0 {
		d.huffman(r, width, base, packed)
	} else if b := r.take(packedLen(len(packed), width)); r.err == nil {
		unpack(b, width, base, packed)
	}
	if r.err != nil {
		return
	}
	for _, o := range outliers {
		packed[o.at] += uint64(unzigzag(o.high)) << width
	}
	switch mode {
	case intDelta:
		out[0] = first
		accumulate(packed, first)
	case intDelta2:
		out[0], out[1] = first, first+delta
		accumulate2(packed, out[1], delta)
	}
}

// fill sets out to first, first+step, first+2*step, ...
func fill(out []uint64, first, step uint64) {
	for i := range out {
		out[i] = first
		first += step
	}
}

// accumulate turns differences into values. v is the value before the first.
func accumulate(nums []uint64, v uint64) {
	for i, d := range nums {
		v += d
		nums[i] = v
	}
}

// accumulate2 turns second differences into values. v is the value before the first,
// and delta the difference that led to it.
func accumulate2(nums []uint64, v, delta uint64) {
	for i, d := range nums {
		delta += d
		v += delta
		nums[i] = v
	}
}

// outliers reads a list of outliers among n numbers. Their values have 8 bytes if
// fixed, else a variable length. The result shares *list's memory; it is nil after a
// fault.
func (r *reader) outliers(list *[]outlier, n int, fixed bool) []outlier {
	count := r.uvarint()
	if count > uint64(n) {
		r.fail("%d outliers among %d numbers", count, n)
		return nil
	}
	found := slices.Grow((*list)[:0], int(count))[:count]
	*list = found
	next := 0
	for i := range found {
		gap := r.uvarint()
		if gap >= uint64(n-next) {
			r.fail("outlier beyond the %d numbers", n)
			return nil
		}
		next += int(gap) + 1
		found[i].at = next - 1
		if fixed {
			found[i].high = r.u64()
		} else {
			found[i].high = r.uvarint()
		}
	}
	return found
}

// resize returns *s with length n, its content undefined.
func resize[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n+n/4)
	}
	*s = (*s)[:n]
	return *s
}
