package buckets

import (
	"math"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/store"
)

// A Source is a file of buckets.
type Source struct {
	Iter      *blockfile.Iter
	StepMS    int64
	Deletions []model.TimeRange // which the file has not applied to the series

	cols     model.Columns
	at       int
	flip     int64
	finished bool
	spare    model.Columns
}

// A Reader yields the buckets that several files have of one series, in order of their
// beginnings, of two with the same beginning the wider one first. It is used by one
// goroutine, and again for other series.
type Reader struct {
	sources []*Source
	decoder chunk.Decoder
	within  model.TimeRange
	flip    int64 // -1 descending, 0 ascending

	Sketches bool // buckets are wanted with their sketches
}

// Open begins to read a series' buckets that begin in a range.
func (r *Reader) Open(series uint32, within model.TimeRange, descending bool, sources []*Source) error {
	r.sources, r.within, r.flip = sources, within, 0
	if descending {
		r.flip = -1
	}
	for _, s := range sources {
		s.Iter.Seek(series, within, descending)
		s.flip, s.finished, s.at = r.flip, false, 0
		s.cols.Reset()
		if err := r.fill(s); err != nil {
			return err
		}
	}
	return nil
}

// fill decodes the source's next chunk that has a bucket in range, when the one before is
// used up.
func (r *Reader) fill(s *Source) error {
	for s.at == s.cols.Len() && !s.finished {
		e, err := s.Iter.Next()
		if err != nil {
			return err
		}
		if e == nil {
			s.finished = true
			return nil
		}
		s.cols.Reset()
		if err := r.decoder.DecodeEntry(e, &s.cols); err != nil {
			return s.Iter.Corrupt(err)
		}
		s.keep(r.within)
	}
	return nil
}

// keep leaves out what is out of range or deleted, and turns the order if need be.
func (s *Source) keep(within model.TimeRange) {
	times := s.cols.Times // ascending
	whole := len(s.Deletions) == 0 && len(times) > 0 && within.Contains(times[0]) && within.Contains(times[len(times)-1])
	if !whole {
		s.cols.Drop(&s.spare, func(i int) bool { return !within.Contains(times[i]) || s.deleted(times[i]) })
	}
	if s.flip != 0 {
		s.cols.Reverse(&s.spare)
	}
	s.at = 0
}

// deleted reports whether one deletion has all of the bucket's time.
func (s *Source) deleted(ms int64) bool {
	for _, d := range s.Deletions {
		if d.StartMS <= ms && lastInstant(ms, s.StepMS) <= d.EndMS {
			return true
		}
	}
	return false
}

func lastInstant(ms, stepMS int64) int64 {
	if ms > math.MaxInt64-stepMS {
		return math.MaxInt64
	}
	return ms + stepMS - 1
}

// Next returns the next bucket, ok = false at the end.
func (r *Reader) Next() (b store.Bucket, ok bool, err error) {
	first := r.first()
	if first == nil {
		return b, false, nil
	}
	b = store.Bucket{StartMS: first.cols.Times[first.at], StepMS: first.StepMS}
	for _, s := range r.sources {
		if s.at == s.cols.Len() || s.cols.Times[s.at] != b.StartMS || s.StepMS != b.StepMS {
			continue
		}
		parse := model.ParsePlain
		if r.Sketches {
			parse = model.ParseAggregate
		}
		part, err := parse(s.cols.Bytes(s.at))
		if err != nil {
			return b, false, s.Iter.Corrupt(err)
		}
		b.Merge(part)
		s.at++
		if err := r.fill(s); err != nil {
			return b, false, err
		}
	}
	return b, true, nil
}

// decoded is how many buckets, at most, come before another chunk is decoded.
func (r *Reader) decoded() (n int) {
	for _, s := range r.sources {
		n += s.cols.Len() - s.at
	}
	return n
}

func (r *Reader) first() (first *Source) {
	for _, s := range r.sources {
		if s.at == s.cols.Len() {
			continue
		}
		if first == nil || r.before(s, first) {
			first = s
		}
	}
	return first
}

func (r *Reader) before(a, b *Source) bool {
	x, y := a.cols.Times[a.at]^r.flip, b.cols.Times[b.at]^r.flip
	return x < y || x == y && a.StepMS > b.StepMS
}
