package wsp

import (
	"cmp"
	"encoding/binary"
	"math"

	"varve/internal/model"
)

// A bucket is a bucket of downsampled samples. On a tape it is three fields of 8 bytes,
// startMS, stepMS and percentile, with the aggregate, without its sketch, before the last.
type bucket struct {
	startMS, stepMS int64
	model.Aggregate
	percentile float64 // if the policy's method is one; late samples do not change it
}

const bucketBytes = 3*8 + model.AggregateSize

// end returns the first instant after the bucket, in ms.
func (b *bucket) end() int64 { return b.startMS + b.stepMS }

func (b *bucket) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint64(to, uint64(b.startMS))
	to = binary.LittleEndian.AppendUint64(to, uint64(b.stepMS))
	plain := b.Aggregate
	plain.Sketch = ""
	return binary.LittleEndian.AppendUint64(plain.Append(to), math.Float64bits(b.percentile))
}

// merge adds another bucket. The percentile of the one with more samples is kept.
func (b *bucket) merge(o bucket) {
	if o.Count > b.Count {
		b.percentile = o.percentile
	}
	b.Aggregate.Merge(o.Aggregate)
}

func parseBucket(b []byte) (parsed bucket, err error) {
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	parsed = bucket{startMS: int64(word(0)), stepMS: int64(word(8)), percentile: math.Float64frombits(word(bucketBytes - 8))}
	parsed.Aggregate, err = model.ParsePlain(b[16 : bucketBytes-8])
	return parsed, err
}

// widerFirst orders buckets by their beginnings; of buckets with the same beginning, the
// widest comes first.
func widerFirst(a, b bucket) int {
	return cmp.Or(cmp.Compare(a.startMS, b.startMS), cmp.Compare(b.stepMS, a.stepMS))
}

// nextBucket removes and returns the next bucket that begins before a time, nil if there
// is none.
func nextBucket(runs []*run[bucket], beforeMS int64) (*bucket, error) {
	first := earliest(runs, widerFirst)
	if first == nil || first.next.startMS >= beforeMS {
		return nil, nil
	}
	b := first.next
	return &b, first.advance()
}
