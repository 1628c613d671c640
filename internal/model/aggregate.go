package model

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Aggregate summarises the values of one series in one bucket of time, so that
// buckets can be merged into wider ones without loss. The zero value is that of an
// empty bucket.
//
// NaN is not counted. Prometheus marks the end of a series by one, and in Graphite it
// stands for no value at all.
//
// As a value of kind [AggregateKind] it has 48 bytes, six big-endian words:
//
//	+-----+-------+-----+-----+------+----------------+
//	| sum | count | min | max | last | time of last   |
//	| f64 | i64   | f64 | f64 | f64  | ms, i64        |
//	+-----+-------+-----+-----+------+----------------+
type Aggregate struct {
	Sum    float64
	Count  int64
	Min    float64
	Max    float64
	Last   float64
	LastMS int64 // of samples at one time the later one wins
}

// AggregateSize is the length of an Aggregate in bytes.
const AggregateSize = 48

// Add counts one more value.
func (a *Aggregate) Add(ms int64, v float64) {
	switch {
	case v != v:
		return
	case a.Count == 0:
		*a = Aggregate{Sum: v, Count: 1, Min: v, Max: v, Last: v, LastMS: ms}
		return
	}
	a.Sum += v
	a.Count++
	a.Min, a.Max = min(a.Min, v), max(a.Max, v)
	if ms >= a.LastMS {
		a.Last, a.LastMS = v, ms
	}
}

// Merge adds all that b has counted. Sums are added in the order of the calls.
func (a *Aggregate) Merge(b Aggregate) {
	switch {
	case b.Count == 0:
		return
	case a.Count == 0:
		*a = b
		return
	}
	a.Sum += b.Sum
	a.Count += b.Count
	a.Min, a.Max = min(a.Min, b.Min), max(a.Max, b.Max)
	if b.LastMS >= a.LastMS {
		a.Last, a.LastMS = b.Last, b.LastMS
	}
}

// Floor returns the multiple of step that is not after ms, of both as milliseconds, say.
// It lies before the beginning of time, and wraps, only for an ms less than a step
// after it.
func Floor(ms, step int64) int64 {
	rest := ms % step
	if rest < 0 {
		rest += step
	}
	return ms - rest
}

// Append appends the bytes of a to dst.
func (a Aggregate) Append(dst []byte) []byte {
	for _, word := range [...]uint64{math.Float64bits(a.Sum), uint64(a.Count), math.Float64bits(a.Min),
		math.Float64bits(a.Max), math.Float64bits(a.Last), uint64(a.LastMS)} {
		dst = binary.BigEndian.AppendUint64(dst, word)
	}
	return dst
}

// ParseAggregate reads what Append has written.
func ParseAggregate(b []byte) (Aggregate, error) {
	if len(b) != AggregateSize {
		return Aggregate{}, fmt.Errorf("aggregate of %d bytes, not %d", len(b), AggregateSize)
	}
	word := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	a := Aggregate{
		Sum: math.Float64frombits(word(0)), Count: int64(word(1)), Min: math.Float64frombits(word(2)),
		Max: math.Float64frombits(word(3)), Last: math.Float64frombits(word(4)), LastMS: int64(word(5)),
	}
	if a.Count < 0 {
		return Aggregate{}, fmt.Errorf("aggregate of %d values", a.Count)
	}
	return a, nil
}
