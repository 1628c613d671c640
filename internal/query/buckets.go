package query

import (
	"cmp"
	"slices"
	"unsafe"

	"varve/internal/model"
	"varve/internal/store"
)

const bucketBytes = int64(unsafe.Sizeof(store.Bucket{}))

// Buckets returns what the store has thinned out of each number, the buckets that begin
// in a range, by time, of those with one beginning the wider first. Those of the long and the double series of a number are both
// there. What the lists take is taken from l.
func (s *Session) Buckets(numbers []Number, within model.TimeRange, l *Lease) ([][]store.Bucket, error) {
	all := make([][]store.Bucket, len(numbers))
	err := s.Parallel(len(numbers), "read buckets", func(i int) (bool, error) {
		for _, part := range numbers[i].parts {
			if err := s.appendBuckets(&all[i], part, within, l); err != nil {
				return false, err
			}
		}
		if len(numbers[i].parts) > 1 {
			slices.SortStableFunc(all[i], func(a, b store.Bucket) int {
				return cmp.Or(cmp.Compare(a.StartMS, b.StartMS), cmp.Compare(b.StepMS, a.StepMS))
			})
		}
		return true, nil
	})
	return all, s.Cause(err)
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
