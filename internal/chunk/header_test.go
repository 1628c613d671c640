package chunk

import (
	"encoding/binary"
	"math"
	"testing"
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
