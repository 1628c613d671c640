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

// intPlan says how a column of integers will be written. Arithmetic wraps
// around, so every int64 and every difference of two is exact.
type intPlan struct {
	mode     byte
	first    uint64   // delta modes
	delta    uint64   // intDelta2: first difference; intDeltaConst: the difference
	base     uint64   // subtracted from what is packed
	width    uint     // bits of a packed number
	packed   []uint64 // the numbers, before base is subtracted
	outliers int      // numbers outside [base, base+2^width)

	// The untrimmed alternative, for the entropy stage.
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

// planInts chooses the cheapest way to write vals, at least one. The plan
// shares the encoder's scratch until the next call.
func (e *encoder) planInts(vals []uint64) intPlan {
	n := len(vals)
	if n == 1 {
		return intPlan{mode: intConst, first: vals[0], values: span{int64(vals[0]), int64(vals[0])}}
	}
	deltas := resize(&e.deltas, n-1)
	first, d := vals[0], vals[1]-vals[0]
	values := span{int64(first), int64(first)}
	diffs := span{int64(d), int64(d)}
	diffs2 := span{math.MaxInt64, math.MinInt64}
	deltas[0] = d
	values.add(vals[1])
	previous, previousDelta := vals[1], d
	rest := vals[2:]
	into := deltas[1:][:len(rest)]
	for i, v := range rest {
		d := v - previous
		into[i] = d
		values.add(v)
		diffs.add(d)
		diffs2.add(d - previousDelta)
		previous, previousDelta = v, d
	}
	p := intPlan{first: first, delta: d, values: values}
	switch {
	case values.min == values.max:
		p.mode = intConst
		return p
	case diffs.min == diffs.max:
		p.mode = intDeltaConst
		return p
	}

	// Ranges alone mislead: one reset of a counter makes differences look as
	// wide as values. Compare the modes by a sample, outliers set apart.
	frameBits := e.sampleFrame(vals, values)
	deltaBits := e.sampleFrame(deltas, diffs)
	delta2Bits := e.sampleDelta2(deltas, diffs2)
	var within span
	switch {
	case frameBits <= deltaBits && frameBits <= delta2Bits:
		p.mode, p.packed, within = intFrame, vals, values
	case deltaBits <= delta2Bits:
		p.mode, p.packed, within = intDelta, deltas, diffs
	default:
		p.mode, within = intDelta2, diffs2
		p.packed = resize(&e.deltas2, len(deltas)-1)
		for i := range p.packed {
			p.packed[i] = deltas[i+1] - deltas[i]
		}
	}
	e.trim(&p, within)
	return p
}

// sampleSize bounds the numbers looked at to choose between modes.
const sampleSize = 64

// sampleFrame estimates the bits for numbers within s.
func (e *encoder) sampleFrame(nums []uint64, s span) int {
	if len(nums) <= sampleSize {
		return e.estimate(nums, len(nums), s)
	}
	stride := len(nums) / sampleSize
	for i := range e.sample {
		e.sample[i] = nums[i*stride]
	}
	return e.estimate(e.sample[:], len(nums), s)
}

// sampleDelta2 estimates the bits for the differences of deltas.
func (e *encoder) sampleDelta2(deltas []uint64, s span) int {
	n := len(deltas) - 1
	m := min(n, sampleSize)
	stride := max(1, n/sampleSize)
	for i := range e.sample[:m] {
		e.sample[i] = deltas[i*stride+1] - deltas[i*stride]
	}
	return e.estimate(e.sample[:m], n, s)
}

// estimate scales the trimmed cost of a sample to n numbers that span s.
func (e *encoder) estimate(sample []uint64, n int, s span) int {
	whole := int(s.width()) * n
	if len(sample) == 0 || s.width() <= 1 {
		return whole
	}
	h := countWidths(sample, centre(sample))
	_, cost := h.cheapest(len(sample))
	return min(whole, cost*n/len(sample))
}

// centre returns the median of five numbers of nums.
func centre(nums []uint64) uint64 {
	n := len(nums)
	five := [5]int64{int64(nums[0]), int64(nums[n/4]), int64(nums[n/2]), int64(nums[n-1-n/4]), int64(nums[n-1])}
	for i := 1; i < len(five); i++ {
		for j := i; j > 0 && five[j] < five[j-1]; j-- {
			five[j], five[j-1] = five[j-1], five[j]
		}
	}
	return uint64(five[2])
}

// widths counts numbers by the width of the window around a centre that holds
// them: 0 is the centre itself, w is [centre-2^(w-1), centre+2^(w-1)).
type widths [65]int32

func countWidths(nums []uint64, centre uint64) (h widths) {
	for _, v := range nums {
		d := int64(v - centre)
		// Numbers next to the centre need one bit, whatever their sign.
		w := bits.Len64(uint64(d^d>>63)<<1 | uint64(min(1, uint64(d))))
		h[w]++
	}
	return h
}

// cheapest returns the window width for which packed bits and outliers
// together cost least, and that cost in bits.
func (h *widths) cheapest(n int) (width uint, cost int) {
	top := len(h) - 1
	for top > 0 && h[top] == 0 {
		top--
	}
	best, bestCost := top, top*n
	outliers := 0
	for w := top - 1; w >= 0; w-- {
		outliers += int(h[w+1])
		if outliers*16 >= bestCost {
			break
		}
		cost := w * n
		for o := w + 1; o <= top; o++ {
			cost += int(h[o]) * (8 + 8*((o-w+7)/7)) // gap and high bits
		}
		if cost < bestCost {
			best, bestCost = w, cost
		}
	}
	return uint(best), bestCost
}

// trim sets base and width of p, leaving outliers on both sides aside where
// that is cheaper than widening every number for them.
func (e *encoder) trim(p *intPlan, within span) {
	p.base, p.width = uint64(within.min), within.width()
	p.wholeBase, p.wholeWidth = p.base, p.width
	if p.width <= 1 {
		return
	}
	c := centre(p.packed)
	h := countWidths(p.packed, c)
	window, cost := h.cheapest(len(p.packed))
	if cost >= int(p.width)*len(p.packed) {
		return
	}
	inside := span{int64(c), int64(c)}
	for _, v := range p.packed {
		d := int64(v - c)
		if window < 64 && (d<<(64-window)>>(64-window) != d) {
			continue
		}
		inside.add(v)
	}
	base, width := uint64(inside.min), inside.width()
	outliers := 0
	for _, v := range p.packed {
		if (v-base)>>width != 0 {
			outliers++
		}
	}
	if width >= p.width {
		return
	}
	p.base, p.width, p.outliers = base, width, outliers
}

// appendInts appends vals, at least one, as an integer column.
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

// appendIntHead appends control byte, width, and what the mode needs.
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
	for i, v := range p.packed {
		x := v - p.base
		if x>>p.width == 0 {
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(i-next))
		dst = appendVarint(dst, uint64(int64(x)>>p.width))
		next = i + 1
	}
	return dst
}

func appendVarint(dst []byte, v uint64) []byte {
	return binary.AppendUvarint(dst, zigzag(int64(v)))
}

// ints reads an integer column of len(out) numbers, at least one.
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
	outliers := d.readOutliers(r, control, len(packed))
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

// accumulate turns differences into values that follow v.
func accumulate(nums []uint64, v uint64) {
	for i, d := range nums {
		v += d
		nums[i] = v
	}
}

// accumulate2 turns differences of differences into values that follow v,
// which was reached by delta.
func accumulate2(nums []uint64, v, delta uint64) {
	for i, d := range nums {
		delta += d
		v += delta
		nums[i] = v
	}
}

// readOutliers reads the list of outliers among n packed numbers, if there is
// one. The result is valid until the next call.
func (d *Decoder) readOutliers(r *reader, control byte, n int) []outlier {
	if r.err != nil || control&intExceptions == 0 {
		return nil
	}
	count := r.uvarint()
	if count > uint64(n) {
		r.fail("%d outliers among %d numbers", count, n)
		return nil
	}
	list := slices.Grow(d.outliers[:0], int(count))[:count]
	d.outliers = list
	next := 0
	for i := range list {
		gap := r.uvarint()
		if gap >= uint64(n-next) {
			r.fail("outlier beyond the %d numbers", n)
			return nil
		}
		next += int(gap) + 1
		list[i] = outlier{at: next - 1, high: r.uvarint()}
	}
	return list
}

// resize returns *s with length n, its content undefined.
func resize[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n+n/4)
	}
	*s = (*s)[:n]
	return *s
}
