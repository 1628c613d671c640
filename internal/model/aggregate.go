package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"varve/internal/quantile"
)

// Aggregate summarises the values of one series in one bucket of time. Merging buckets
// into wider ones loses nothing. The zero value is the aggregate of an empty bucket.
//
// NaN is not counted: Prometheus marks the end of a series by a NaN, and in Graphite
// NaN means "no value".
//
// A value of kind [AggregateKind] encodes an Aggregate as 48 bytes, six big-endian
// words, followed by the sketch, if there is one:
//
//	+-----+-------+-----+-----+------+----------------+--------+
//	| sum | count | min | max | last | time of last   | sketch |
//	| f64 | i64   | f64 | f64 | f64  | ms, i64        |        |
//	+-----+-------+-----+-----+------+----------------+--------+
type Aggregate struct {
	Sum    float64
	Count  int64
	Min    float64
	Max    float64
	Last   float64
	LastMS int64 // of two samples at the same time, the one added later wins

	// Sketch contains all values that were counted, or is "". Only retention policies
	// that ask for percentiles store sketches. A merge with an aggregate without a
	// sketch has no sketch.
	Sketch quantile.Sketch
}

// AggregateSize is the length of an Aggregate without its sketch, in bytes.
const AggregateSize = 48

// Add counts one more value. It does not start a sketch in an empty bucket.
func (a *Aggregate) Add(ms int64, v float64) {
	if v != v {
		return
	}
	one := Aggregate{Sum: v, Count: 1, Min: v, Max: v, Last: v, LastMS: ms}
	if a.Sketch != "" {
		one.Sketch = quantile.Of(v)
	}
	a.Merge(one)
}

// Merge adds all values that b has counted. Sums are added in the order of the calls.
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
	if a.Sketch != "" && b.Sketch != "" {
		a.Sketch = quantile.Merge(a.Sketch, b.Sketch)
	} else {
		a.Sketch = ""
	}
}

// Percentile returns a percentile with the relative error of the sketch. Without a sketch
// it returns the average.
func (a *Aggregate) Percentile(percent float64) float64 {
	if a.Sketch == "" {
		return a.Sum / float64(a.Count)
	}
	return a.Sketch.At(Rank(percent, a.Count), a.Min, a.Max)
}

// Rank returns the rank of a percentile among count ascending values, counted from 1:
// percent/100 * (count + 1), rounded up, as in Graphite.
func Rank(percent float64, count int64) int64 {
	rank := math.Ceil(percent / 100 * (float64(count) + 1))
	return min(max(int64(rank), 1), count)
}

// Floor returns the largest multiple of step that is at most ms; both have the same unit.
// If ms is less than one step above math.MinInt64, the result may wrap around.
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
	return append(dst, a.Sketch...)
}

// ParseAggregate is the inverse of Append.
func ParseAggregate(b []byte) (Aggregate, error) {
	a, err := ParsePlain(b)
	if err != nil || len(b) == AggregateSize {
		return a, err
	}
	if a.Sketch, err = ParseSketch(b[AggregateSize:], a.Count); err != nil {
		return Aggregate{}, err
	}
	return a, nil
}

// ParseSketch decodes the sketch of an aggregate of count values. Empty input means that
// there is no sketch.
func ParseSketch(b []byte, count int64) (quantile.Sketch, error) {
	if len(b) == 0 {
		return "", nil
	}
	s, err := quantile.Parse(b)
	if err != nil {
		return "", err
	}
	if n := s.Count(); n != count {
		return "", fmt.Errorf("sketch of %d values in an aggregate of %d", n, count)
	}
	return s, nil
}

// ParsePlain is ParseAggregate without the sketch, which it neither checks nor returns.
func ParsePlain(b []byte) (Aggregate, error) {
	if len(b) < AggregateSize {
		return Aggregate{}, fmt.Errorf("aggregate of %d bytes, fewer than %d", len(b), AggregateSize)
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
