package agg

import (
	"math"

	"varve/internal/store"
)

// A bucket is a span of time. It includes its last instant, so that a bucket can end
// with the last representable instant.
type bucket struct{ startMS, finalMS int64 }

// noBucket contains no instant.
var noBucket = bucket{0, -1}

func (b bucket) holds(ms int64) bool { return b.startMS <= ms && ms <= b.finalMS }

// endMS is the first instant after b, or the last representable instant.
func (b bucket) endMS() int64 { return saturatingAdd(b.finalMS, 1) }

// after is the span of the same length that follows b, noBucket if there is none.
func (b bucket) after() bucket {
	length := b.finalMS - b.startMS
	if start, final := b.finalMS+1, b.finalMS+1+length; length >= 0 && b.finalMS < start && start <= final {
		return bucket{start, final}
	}
	return noBucket
}

// buckets cuts time into spans of a sampling. Bucket 0 begins at the origin. Every
// boundary is computed from the origin, so that months that begin on the 31st are
// clipped to the month's length and recover afterwards.
type buckets struct {
	cal      calendar
	sampling Sampling
	originMS int64
}

var errZeroSampling = &store.InputError{Reason: "sampling.value must be greater than 0"}

// check refuses a sampling of length 0. KairosDB notices it only when there are points,
// so callers check at the first point.
func (b *buckets) check() error {
	if b.sampling.Value <= 0 {
		return errZeroSampling
	}
	return nil
}

// start is the first instant of bucket k.
func (b *buckets) start(k int64) int64 {
	if k == 0 { // the calendar may end before the origin
		return b.originMS
	}
	return b.cal.add(b.originMS, saturatingMul(k, b.sampling.Value), b.sampling.Unit)
}

// even reports whether buckets at and after the origin have the same length.
func (b *buckets) even() bool { return b.sampling.Unit.fixedMS() > 0 }

// find returns the bucket of an instant. The bucket never ends before the instant.
// Before the origin KairosDB truncates the quotient towards zero: an instant less
// than one sampling before the origin is in bucket 0.
func (b *buckets) find(ms int64) bucket {
	if ms < b.originMS {
		k := -(b.cal.between(ms, b.originMS, b.sampling.Unit) / b.sampling.Value)
		return bucket{b.start(k), max(b.start(k+1)-1, ms)}
	}
	if f := b.sampling.Unit.fixedMS(); f > 0 {
		return b.findFixed(ms, f)
	}
	k := b.cal.unitsBetween(b.originMS, ms, b.sampling.Unit) / b.sampling.Value
	for k > 0 && b.start(k) > ms {
		k--
	}
	start, end := b.start(k), b.start(k+1)
	for end <= ms && end > start {
		k++
		start, end = end, b.start(k+1)
	}
	if end <= ms { // the calendar has ended: one bucket contains the rest
		return bucket{start, math.MaxInt64}
	}
	return bucket{start, end - 1}
}

// findFixed is find for a unit of f ms and an instant at or after the origin.
func (b *buckets) findFixed(ms, f int64) bucket {
	length := saturatingMul(b.sampling.Value, f)
	within := (uint64(ms) - uint64(b.originMS)) % uint64(length)
	start := ms - int64(within)
	return bucket{start, saturatingAdd(start, length-1)}
}
