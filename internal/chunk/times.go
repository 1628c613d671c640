package chunk

import (
	"encoding/binary"
	"math"
	"slices"
)

// Encodings of a chunk's times: the low two bits of its flags.
const (
	timesShared  = 0 // those of the latest chunk of the page with a column of times
	timesRegular = 1 // equal steps: first and last are enough
	timesCoded   = 2 // a column of times
	timesEarlier = 3 // those of an earlier chunk with a column of times

	// timesKept is how many of a page's latest columns of times a chunk can refer to.
	timesKept = 8
)

// Modes of a column of times. Both store the times after the first one, relative to it.
// The numbers are on disk.
const (
	timeInts   = 0 // an integer column
	timeLinear = 1 // step, then an integer column of time - i*step
)

// regular reports whether all times have the same distance.
func regular(times []int64) bool {
	if len(times) < 3 {
		return true
	}
	step := uint64(times[1]) - uint64(times[0])
	for i := 2; i < len(times); i++ {
		if uint64(times[i])-uint64(times[i-1]) != step {
			return false
		}
	}
	return true
}

// appendTimes appends a column of times. There must be at least two.
func (e *encoder) appendTimes(dst []byte, times []int64) []byte {
	first := uint64(times[0])
	rel := resize(&e.ints, len(times)-1)
	for i, t := range times[1:] {
		rel[i] = uint64(t) - first
	}
	direct := e.planInts(rel)
	directBits := direct.bits()
	step := stepLike(rel)
	linear := e.planInts(e.residuals(rel, step))
	if linear.bits() < directBits {
		dst = binary.AppendUvarint(append(dst, timeLinear), step)
		return e.appendPlan(dst, &linear)
	}
	return e.appendInts(append(dst, timeInts), rel)
}

// stepLike returns the step with the smallest residuals among a few candidates. Jitter
// at the ends shifts the mean step, so rounder steps are tried as well.
func stepLike(rel []uint64) (step uint64) {
	n := uint64(len(rel))
	mean := (rel[n-1] + n/2) / n
	best := uint(65)
	for _, unit := range [...]uint64{1, 10, 100, 1000} {
		s := (mean + unit/2) / unit * unit
		if s == step && best < 65 {
			continue
		}
		all := span{math.MaxInt64, math.MinInt64}
		at := uint64(0)
		for _, t := range rel {
			at += s
			all.add(t - at)
		}
		if w := all.width(); w <= best {
			step, best = s, w
		}
	}
	return step
}

func (e *encoder) residuals(rel []uint64, step uint64) []uint64 {
	out := resize(&e.residual, len(rel))
	at := uint64(0)
	for i, t := range rel {
		at += step
		out[i] = t - at
	}
	return out
}

// regularTimes appends n times from first to last to dst.
func regularTimes(dst []int64, n int, first, last int64) []int64 {
	dst = append(dst, first)
	if n == 1 {
		return dst
	}
	step := int64((uint64(last) - uint64(first)) / uint64(n-1)) // the span may exceed int64
	at := len(dst)
	dst = slices.Grow(dst, n-1)[:at+n-1]
	into := dst[at:]
	for i := range into {
		first += step
		into[i] = first
	}
	return dst
}

// codedTimes reads a column of times and appends n times to dst.
func (d *Decoder) codedTimes(r *reader, dst []int64, n int, first, last int64) []int64 {
	if n < 2 {
		r.fail("column of times for %d samples", n)
		return dst
	}
	mode, step := r.u8(), uint64(0)
	switch mode {
	case timeInts:
	case timeLinear:
		step = r.uvarint()
	default:
		r.fail("unknown column of times %#x", mode)
	}
	rel := resize(&d.numbers, n-1)
	d.ints(r, rel)
	if r.err != nil {
		return dst
	}
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	dst[at] = first
	base := uint64(first)
	into := dst[at+1:][:len(rel)]
	for i, t := range rel {
		base += step
		into[i] = int64(base + t)
	}
	if dst[len(dst)-1] != last {
		r.fail("times end at %d, %d expected", dst[len(dst)-1], last)
		return dst[:at]
	}
	return dst
}
