package chunk

import (
	"encoding/binary"
	"math"
	"slices"
)

// Tags of a column of doubles. 0..15 is an integer column of mantissas m of
// values m/10^tag; the numbers are on disk.
const (
	doubleExponentMask = 0x0f
	doubleExceptions   = 0x10 // with an exponent: some values are listed raw
	doubleConst        = 0x20 // one value for all
	doubleRaw          = 0x21 // 8 bytes each
	doubleSplit        = 0x22 // sign and exponent by dictionary, 52 bits packed
)

const (
	maxExponent  = 15
	longExponent = 10   // from here on plain bits may be smaller
	maxMantissa  = 9e15 // below 2^53: every such integer is a float64

	// roundMagic added to |x| < 2^51 leaves x, rounded to an integer, in the
	// low bits: several times faster than a conversion.
	roundMagic = 0x1.8p52

	splitBits   = 52
	splitMin    = 32   // values: for fewer a dictionary costs too much
	splitMaxTop = 1024 // distinct tops
)

var powersOfTen = [maxExponent + 1]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
}

// doubleInfo tells how a column was written, for statistics.
type doubleInfo struct {
	decimal  bool // all values are mantissas/10^exponent, without exceptions
	exponent int
	mantissas
}

// mantissas summarises integers. The sum wraps around.
type mantissas struct{ first, last, min, max, sum int64 }

func summarise(ints []uint64, s span) mantissas {
	sum := uint64(0)
	for _, v := range ints {
		sum += v
	}
	return mantissas{int64(ints[0]), int64(ints[len(ints)-1]), s.min, s.max, int64(sum)}
}

// appendDoubles appends vals, at least one, as a column of doubles.
func (e *encoder) appendDoubles(dst []byte, vals []uint64) ([]byte, doubleInfo) {
	if allEqual(vals) {
		return appendConstDouble(dst, vals[0], len(vals))
	}
	exp, ok := e.scale(vals)
	if !ok {
		return e.appendBinary(dst, vals), doubleInfo{}
	}
	start := len(dst)
	dst, info := e.appendDecimal(dst, vals, exp)
	if exp < longExponent && len(e.exceptions)*16 <= len(vals) {
		return dst, info
	}
	// Many digits or many exceptions: plain bits may be smaller.
	e.alternative = e.appendBinary(e.alternative[:0], vals)
	if len(e.alternative) >= len(dst)-start {
		return dst, info
	}
	return append(dst[:start], e.alternative...), doubleInfo{}
}

func allEqual(vals []uint64) bool {
	for _, v := range vals[1:] {
		if v != vals[0] {
			return false
		}
	}
	return true
}

// appendConstDouble appends a column that holds v n times.
func appendConstDouble(dst []byte, v uint64, n int) ([]byte, doubleInfo) {
	exp := exponentOf(v, 0)
	if exp > maxExponent {
		return binary.LittleEndian.AppendUint64(append(dst, doubleConst), v), doubleInfo{}
	}
	m := int64(math.RoundToEven(math.Float64frombits(v) * powersOfTen[exp]))
	dst = appendVarint(append(dst, byte(exp), intConst), uint64(m))
	return dst, doubleInfo{decimal: true, exponent: exp, mantissas: mantissas{m, m, m, m, m * int64(n)}}
}

// exponentOf returns the smallest exponent from low on with which v is exactly a
// mantissa / 10^exponent, or maxExponent+1 if there is none.
//
// A value that fits an exponent fits every larger one while the mantissa stays below
// maxMantissa, so the largest exponents rule out most values at once. The very largest
// may fail to fit, since the product with a power of ten is off by up to half.
func exponentOf(v uint64, low int) int {
	f := math.Float64frombits(v)
	const quick = 4
	for exp := low; exp <= maxExponent; exp++ {
		if exp == low+quick {
			top := maxExponent
			for top > exp && !(math.Abs(f)*powersOfTen[top] < maxMantissa) {
				top--
			}
			if !fits(f, top) && (top <= exp || !fits(f, top-1)) {
				break
			}
		}
		if fits(f, exp) {
			return exp
		}
	}
	return maxExponent + 1
}

// fits reports whether f is a mantissa / 10^exp, bit for bit.
func fits(f float64, exp int) bool {
	t := f * powersOfTen[exp]
	return math.Abs(t) < maxMantissa &&
		math.Float64bits(float64(int64(math.RoundToEven(t)))/powersOfTen[exp]) == math.Float64bits(f)
}

// exponents counts values by the smallest exponent that fits them.
type exponents [maxExponent + 2]int

// best returns the exponent that makes the whole column smallest, and its cost in bits.
// A value that fits costs its digits, any other its raw bits.
func (h *exponents) best() (exp, cost int) {
	total := 0
	for _, n := range h {
		total += n
	}
	exp, cost = -1, math.MaxInt
	covered := 0
	for i := 0; i <= maxExponent; i++ {
		covered += h[i]
		if c := covered*i*10/3 + (total-covered)*72; h[i] > 0 && c < cost {
			exp, cost = i, c
		}
	}
	return exp, cost
}

// scale finds mantissas (e.ints) and a common exponent for vals. The positions of values
// that do not fit are in e.exceptions. scale returns false if the values are not decimal
// by nature.
func (e *encoder) scale(vals []uint64) (exp int, ok bool) {
	var h exponents
	m := min(16, len(vals)/4+1)
	for i := range m {
		h[exponentOf(vals[i*len(vals)/m], 0)]++
	}
	exp, cost := h.best()
	if exp < 0 || cost > 56*m || h[maxExponent+1] > mayMiss(m, exp) {
		return 0, false
	}
	for range 3 {
		var failed exponents
		if !e.scaleBy(vals, exp, &failed) {
			return 0, false
		}
		if len(e.exceptions) == 0 {
			return exp, true
		}
		failed[exp] += len(vals) - len(e.exceptions)
		better, _ := failed.best()
		if better <= exp {
			return exp, true
		}
		exp = better
	}
	ok = e.scaleBy(vals, exp, new(exponents))
	return exp, ok
}

// mayMiss returns how many of n values may fail to fit the exponent. With that many
// digits, random bits often look decimal, but not all of them do.
func mayMiss(n, exp int) int {
	if exp >= longExponent {
		return n / 8
	}
	return (n + 1) / 2
}

// scaleBy fills e.ints and e.exceptions for one exponent and counts in failed which
// exponents the exceptions would need. It returns false if more than mayMiss values do
// not fit.
func (e *encoder) scaleBy(vals []uint64, exp int, failed *exponents) bool {
	p := powersOfTen[exp]
	ints := resize(&e.ints, len(vals))
	e.exceptions = e.exceptions[:0]
	magicBits := math.Float64bits(roundMagic)
	limit := mayMiss(len(vals), exp)
	filler := uint64(0)
	for i, v := range vals {
		f := math.Float64frombits(v)
		m := math.Float64bits(f*p+roundMagic) - magicBits
		if math.Float64bits(float64(int64(m))/p) == v {
			ints[i], filler = m, m
			continue
		}
		if need := exponentOf(v, exp); need != exp {
			if len(e.exceptions) < 64 {
				failed[need]++
			} else {
				failed[maxExponent+1]++
			}
			ints[i] = filler
			e.exceptions = append(e.exceptions, i)
			if len(e.exceptions) > limit {
				return false
			}
			continue
		}
		m = uint64(int64(math.RoundToEven(f * p)))
		ints[i], filler = m, m
	}
	return true
}

func (e *encoder) appendDecimal(dst []byte, vals []uint64, exp int) ([]byte, doubleInfo) {
	if len(e.exceptions) == 0 {
		dst = append(dst, byte(exp))
		p := e.planInts(e.ints)
		info := doubleInfo{decimal: true, exponent: exp, mantissas: summarise(e.ints, p.values)}
		return e.appendPlan(dst, &p), info
	}
	if e.exceptions[0] == 0 { // the first filler is not a neighbour of anything
		e.fillFront()
	}
	dst = append(dst, byte(exp)|doubleExceptions)
	dst = binary.AppendUvarint(dst, uint64(len(e.exceptions)))
	next := 0
	for _, i := range e.exceptions {
		dst = binary.AppendUvarint(dst, uint64(i-next))
		dst = binary.LittleEndian.AppendUint64(dst, vals[i])
		next = i + 1
	}
	return e.appendInts(dst, e.ints), doubleInfo{}
}

// fillFront gives the leading exceptions the first real mantissa.
func (e *encoder) fillFront() {
	n := 0
	for n < len(e.exceptions) && e.exceptions[n] == n {
		n++
	}
	if n == len(e.ints) {
		return
	}
	for i := range n {
		e.ints[i] = e.ints[n]
	}
}

// appendBinary appends the bits of vals, with sign and exponent apart if that is
// smaller.
func (e *encoder) appendBinary(dst []byte, vals []uint64) []byte {
	start := len(dst)
	if len(vals) >= splitMin {
		dst = e.appendSplit(dst, vals)
		if n := len(dst) - start; n > 0 && n < 8*len(vals) {
			return dst
		}
		dst = dst[:start]
	}
	dst = slices.Grow(append(dst, doubleRaw), 8*len(vals))
	for _, v := range vals {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

// topOf returns exponent and sign of a double, with the sign as the lowest bit, so that
// values of both signs and similar size are neighbours.
func topOf(v uint64) uint64 {
	return v>>52&0x7ff<<1 | v>>63
}

func fromTop(t uint64) uint64 { return t>>1<<52 | t<<63 }

// appendSplit appends vals by dictionary of their tops: the number of tops,
// their differences, an integer column of ranks, 52 bits each. It appends
// nothing if there are too many tops.
func (e *encoder) appendSplit(dst []byte, vals []uint64) []byte {
	ranks := &e.ranks // all zero between calls
	tops := e.tops[:0]
	for _, v := range vals {
		if t := topOf(v); ranks[t] == 0 {
			ranks[t] = 1
			tops = append(tops, uint16(t))
		}
	}
	e.tops = tops
	defer e.forgetRanks()
	if len(tops) > splitMaxTop {
		return dst
	}
	slices.Sort(tops)
	dst = binary.AppendUvarint(append(dst, doubleSplit), uint64(len(tops)))
	previous := uint16(0)
	for rank, t := range tops {
		dst = binary.AppendUvarint(dst, uint64(t-previous))
		ranks[t], previous = uint16(rank), t
	}
	ints := resize(&e.ints, len(vals))
	for i, v := range vals {
		ints[i] = uint64(ranks[topOf(v)])
	}
	dst = e.appendInts(dst, ints)
	return appendPacked(dst, vals, 0, splitBits)
}

func (e *encoder) forgetRanks() {
	for _, t := range e.tops {
		e.ranks[t] = 0
	}
}

// doubles reads a column of len(out) doubles, at least one.
func (d *Decoder) doubles(r *reader, out []uint64) {
	tag := r.u8()
	switch {
	case tag == doubleConst:
		fill(out, r.u64(), 0)
	case tag == doubleRaw:
		if b := r.take(8 * len(out)); r.err == nil {
			unpack(b, 64, 0, out)
		}
	case tag == doubleSplit:
		d.split(r, out)
	case tag&^(doubleExponentMask|doubleExceptions) == 0:
		d.decimal(r, tag, out)
	default:
		r.fail("unknown column of doubles %#x", tag)
	}
}

func (d *Decoder) decimal(r *reader, tag byte, out []uint64) {
	var exceptions []outlier // values without a mantissa
	if tag&doubleExceptions != 0 {
		exceptions = r.outliers(&d.exceptions, len(out), true)
	}
	if r.err == nil && r.pos < len(r.b) && r.b[r.pos] == intConst { // divide once
		r.pos++
		fill(out, math.Float64bits(scaled(r.varint(), int(tag&doubleExponentMask))), 0)
	} else {
		d.unscaled(r, tag, out)
	}
	if r.err != nil {
		return
	}
	for _, x := range exceptions {
		out[x.at] = x.high
	}
}

func (d *Decoder) unscaled(r *reader, tag byte, out []uint64) {
	d.ints(r, out)
	if r.err == nil {
		unscale(out, powersOfTen[tag&doubleExponentMask])
	}
}

// unscale turns mantissas into doubles.
func unscale(out []uint64, p float64) {
	if p == 1 {
		for i, m := range out {
			out[i] = math.Float64bits(float64(int64(m)))
		}
		return
	}
	for i, m := range out {
		out[i] = math.Float64bits(float64(int64(m)) / p)
	}
}

func (d *Decoder) split(r *reader, out []uint64) {
	count := r.uvarint()
	if count == 0 || count > splitMaxTop {
		r.fail("%d sign and exponent pairs", count)
		return
	}
	tops := resize(&d.tops, int(count))
	t := uint64(0)
	for i := range tops {
		t += r.uvarint()
		tops[i] = fromTop(t & 0xfff)
	}
	ranks := resize(&d.numbers, len(out))
	d.ints(r, ranks)
	b := r.take(packedLen(len(out), splitBits))
	if r.err != nil {
		return
	}
	unpack(b, splitBits, 0, out)
	for i, rank := range ranks {
		if rank >= uint64(len(tops)) {
			r.fail("sign and exponent pair %d of %d", rank, len(tops))
			return
		}
		out[i] |= tops[rank]
	}
}
