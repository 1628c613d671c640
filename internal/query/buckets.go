package query

import (
	"cmp"
	"slices"
	"unsafe"

	"varve/internal/model"
	"varve/internal/store"
)

const bucketBytes = int64(unsafe.Sizeof(store.Bucket{}))

// AppendBuckets appends what the store has thinned out of a number, the buckets that begin
// in a range, by time, of those with one beginning the wider first. Those of the long and
// the double series of a number are both there. What is appended is taken from l.
func (s *Session) AppendBuckets(to []store.Bucket, n Number, within model.TimeRange, l *Lease) ([]store.Bucket, error) {
	before := len(to)
	for _, part := range n.parts {
		if err := s.appendBuckets(&to, part, within, l); err != nil {
			return to, s.Cause(err)
		}
	}
	if len(n.parts) > 1 {
		slices.SortStableFunc(to[before:], func(a, b store.Bucket) int {
			return cmp.Or(cmp.Compare(a.StartMS, b.StartMS), cmp.Compare(b.StepMS, a.StepMS))
		})
	}
	return to, nil
}

func (s *Session) appendBuckets(to *[]store.Bucket, series store.Series, within model.TimeRange, l *Lease) error {
	cursor := s.Open(series, store.ReadOptions{Range: within, Buckets: store.BucketsOnly})
	defer cursor.Close()
	for {
		b, err := cursor.Next()
		if err != nil || b == nil {
			return err
		}
		bytes := int64(len(b.Buckets)) * bucketBytes
		for i := range b.Buckets {
			bytes += int64(len(b.Buckets[i].Sketch))
		}
		if err := l.Take(bytes); err != nil {
			return err
		}
		*to = append(*to, b.Buckets...)
	}
}
