package chunk

import (
	"encoding/binary"
	"math"
	"testing"

	"varve/internal/model"
)

// TestSpans: a header is refused if so many samples cannot lie between its first and last time, or
// not at equal steps, or if the last time is beyond the largest.
func TestSpans(t *testing.T) {
	for _, c := range []struct {
		flags byte
		count uint64
		first int64
		span  uint64
		ok    bool
	}{
		{timesCoded, 0, 5, 0, false},
		{timesCoded, 1, 5, 0, true},
		{timesCoded, 1, 5, 1, false},
		{timesCoded, 2, 5, 0, false},
		{timesCoded, 2, 5, 1, true},
		{timesCoded, 3, 5, 1, false},
		{timesCoded, 3, 5, 3, true},
		{timesRegular, 1, 5, 0, true},
		{timesRegular, 3, 5, 3, false},
		{timesRegular, 3, 5, 4, true},
		{timesCoded, MaxSamples, 5, MaxSamples, true},
		{timesCoded, MaxSamples + 1, 5, MaxSamples, false},
		{timesCoded, 2, math.MaxInt64 - 7, 7, true},
		{timesCoded, 2, math.MaxInt64 - 7, 8, false},
		{timesCoded, 2, math.MinInt64, math.MaxUint64, true},
		{timesCoded, 2, math.MinInt64 + 1, math.MaxUint64, false},
	} {
		r := reader{b: binary.AppendUvarint(binary.AppendUvarint(nil, zigzag(c.first)), c.span)}
		h := header{flags: c.flags}
		h.span(&r, c.count, 0)
		if ok := r.err == nil; ok != c.ok || ok && (h.first != c.first || h.last != int64(uint64(c.first)+c.span) || h.count != int(c.count)) {
			t.Errorf("%+v: %+v, %v", c, h, r.err)
		}
	}
}

// TestStatsAsMantissas: statistics are stored as mantissas, which take a few bytes, unless one of
// them is -0, which has no mantissa.
func TestStatsAsMantissas(t *testing.T) {
	zero := math.Copysign(0, -1)
	for _, c := range []struct {
		values  [4]float64
		compact bool
	}{
		{[4]float64{0, -1, 1, 0}, true},
		{[4]float64{5, 0, 7, 6}, true},
		{[4]float64{zero, -1, 1, 0}, false}, // the first
		{[4]float64{0, -1, 1, zero}, false}, // the last
		{[4]float64{1, zero, 2, 1}, false},  // the least
		{[4]float64{-1, -2, zero, -1}, false},
	} {
		var bits []uint64
		for _, v := range c.values {
			bits = append(bits, math.Float64bits(v))
		}
		s, _ := statsOf(model.Double, bits)
		m := doubleInfo{decimal: true, mantissas: mantissas{int64(c.values[0]), int64(c.values[3]), int64(s.Min), int64(s.Max), int64(s.Sum)}}
		b := appendStats(nil, model.Double, bits, m)
		if compact := len(b) < 10; compact != c.compact {
			t.Errorf("%v: statistics of %d bytes", c.values, len(b))
		}
		r := reader{b: b}
		if got := readStats(&r, model.Double, len(bits)); r.err != nil || !sameStats(&s, got) || got.Sum != s.Sum {
			t.Errorf("%v: %+v is read, want %+v, %v", c.values, got, s, r.err)
		}
	}
}

// TestNegativeCount: an aggregate of a negative number of values is refused.
func TestNegativeCount(t *testing.T) {
	var c model.Columns
	for i := range int64(40) {
		c.AppendBytes(i, model.Aggregate{Count: i - 1}.Append(nil), 0)
	}
	var b PageBuilder
	b.Reset(Best)
	b.Add(3, model.AggregateKind, &c, 0, c.Len())
	p, err := OpenPage(b.Finish(nil))
	if err != nil {
		t.Fatal(err)
	}
	var d Decoder
	var e Entry
	var got model.Aggregates
	it := p.Iter()
	if !it.Next(&e) {
		t.Fatal("the page is empty")
	}
	if err := d.DecodeAggregates(&e, model.AllStats, &got, nil); err == nil {
		t.Error("-1 values are accepted")
	}
}
