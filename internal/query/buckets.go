package query

import (
	"cmp"
	"slices"
	"unsafe"

	"varve/internal/model"
	"varve/internal/store"
)

// bucketWords is how many words all columns of a bucket have.
const bucketWords = 8

// AppendBuckets appends the buckets to which the store has downsampled a number and that
// begin in a range. They are ordered by start; of buckets with the same start, the wider
// comes first. Buckets of the long and of the double series are both included. needs are
// the columns to fill beside those that are always filled; to has no others. The memory
// of the appended buckets is taken from l.
func (s *Session) AppendBuckets(to *store.Buckets, n Number, within model.TimeRange, needs model.StatSet, l *Lease) error {
	if len(n.parts) > 1 {
		return s.appendSorted(to, n, within, needs, l)
	}
	return s.appendBuckets(to, n.parts[0], within, needs, l)
}

// appendSorted appends the buckets of several parts.
func (s *Session) appendSorted(to *store.Buckets, n Number, within model.TimeRange, needs model.StatSet, l *Lease) error {
	var parts store.Buckets
	for _, part := range n.parts {
		if err := s.appendBuckets(&parts, part, within, needs, l); err != nil {
			return err
		}
	}
	// Until the end there are three copies: parts, all, and what is appended.
	if err := l.Take(int64(parts.Len()) * (int64(unsafe.Sizeof(store.Bucket{})) + bucketWords*8)); err != nil {
		return s.Cause(err)
	}
	all := make([]store.Bucket, parts.Len())
	for i := range all {
		all[i] = parts.At(i)
	}
	slices.SortStableFunc(all, func(a, b store.Bucket) int {
		return cmp.Or(cmp.Compare(a.StartMS, b.StartMS), cmp.Compare(b.StepMS, a.StepMS))
	})
	for _, b := range all {
		to.Add(b, needs)
	}
	return nil
}

func (s *Session) appendBuckets(to *store.Buckets, series store.Series, within model.TimeRange, needs model.StatSet, l *Lease) error {
	cursor := s.Open(series, store.ReadOptions{Range: within, Buckets: store.BucketsOnly, Needs: needs})
	defer cursor.Close()
	for {
		b, err := cursor.Next()
		if err != nil || b == nil || b.Buckets == nil { // samples, from a store that downsamples nothing
			return s.Cause(err)
		}
		bytes := int64(b.Buckets.Len()) * bucketWords * 8
		for _, sketch := range b.Buckets.Sketches {
			bytes += 16 + int64(len(sketch))
		}
		if err := l.Take(bytes); err != nil {
			return s.Cause(err)
		}
		to.Append(b.Buckets)
	}
}
