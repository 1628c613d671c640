package buckets

import (
	"math"
	"sort"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/store"
)

// A Source is a file of buckets.
type Source struct {
	Iter      *blockfile.Iter
	StepMS    int64
	Deletions []model.TimeRange // ranges of deletions of the series that the file has not applied

	cols     model.Aggregates
	sketches model.Columns // their bytes, if they are wanted
	at       int           // the next bucket, if some are left
	left     int
	stride   int // to the bucket after it: 1, or -1 descending
	finished bool
}

// A Reader yields the buckets that several files have of one series, ordered by start; of two with
// the same start, the wider one first. It is used by one goroutine, and can be reused for other
// series.
type Reader struct {
	sources []*Source
	kept    []model.Aggregates // memory of sources
	decoder chunk.Decoder
	within  model.TimeRange
	flip    int64             // -1 descending, 0 ascending
	parts   []model.Aggregate // scratch: the parts of the next bucket, by file

	Needs    model.StatSet // beside counts and times
	Sketches bool          // buckets are wanted with their sketches
}

// Open begins to read a series' buckets that begin in a range.
func (r *Reader) Open(series model.SeriesNumber, within model.TimeRange, descending bool, sources []*Source) {
	r.sources, r.within, r.flip = sources, within, 0
	if descending {
		r.flip = -1
	}
	for _, s := range sources {
		s.Iter.Seek(series, within, descending)
		if n := len(r.kept) - 1; n >= 0 && s.cols.StartMS == nil {
			s.cols, r.kept = r.kept[n], r.kept[:n]
		}
	}
}

// maxKept limits the columns that a Reader keeps.
const maxKept = 8

// release keeps the memory of the sources for later ones.
func (r *Reader) release() {
	for _, s := range r.sources {
		if len(r.kept) < maxKept {
			r.kept = append(r.kept, s.cols)
		}
		s.cols = model.Aggregates{}
	}
	r.sources = nil
}

// fill decodes the next chunk that has a bucket in range, for each source whose previous chunk is
// used up.
func (r *Reader) fill() error {
	for _, s := range r.sources {
		for s.left == 0 && !s.finished {
			e, err := s.Iter.Next()
			if err != nil {
				return err
			}
			if e == nil {
				s.finished = true
				break
			}
			sketches := &s.sketches
			if !r.Sketches {
				sketches = nil
			}
			if err := r.decoder.DecodeAggregates(e, r.Needs, &s.cols, sketches); err != nil {
				return s.Iter.Corrupt(err)
			}
			s.keep(r.within, r.flip != 0)
		}
	}
	return nil
}

// keep drops buckets that are out of range or deleted.
func (s *Source) keep(within model.TimeRange, descending bool) {
	times := s.cols.StartMS // ascending
	from := sort.Search(len(times), func(i int) bool { return times[i] >= within.StartMS })
	to := from + sort.Search(len(times)-from, func(i int) bool { return times[from+i] > within.EndMS })
	s.at, s.left, s.stride = from, to-from, 1
	if descending {
		s.at, s.stride = to-1, -1
	}
	s.pass()
}

// skip moves past n buckets, which stay unread.
func (s *Source) skip(n int) {
	s.at, s.left = s.at+n*s.stride, s.left-n
	s.pass()
}

// pass moves past buckets that are deleted.
func (s *Source) pass() {
	for len(s.Deletions) > 0 && s.left > 0 && s.deleted(s.cols.StartMS[s.at]) {
		s.at, s.left = s.at+s.stride, s.left-1
	}
}

// deleted reports whether one deletion covers all of the bucket's time.
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
	if err := r.fill(); err != nil {
		return b, false, err
	}
	first := r.first()
	if first == nil {
		return b, false, nil
	}
	b = store.Bucket{StartMS: first.cols.StartMS[first.at], StepMS: first.StepMS}
	r.parts = r.parts[:0]
	for _, s := range r.sources { // the oldest first
		if s.left == 0 || s.cols.StartMS[s.at] != b.StartMS || s.StepMS != b.StepMS {
			continue
		}
		part := s.cols.At(s.at)
		if r.Sketches {
			if part.Sketch, err = model.ParseSketch(s.sketches.Bytes(s.at), part.Count); err != nil {
				return b, false, s.Iter.Corrupt(err)
			}
		}
		r.add(part)
		s.skip(1)
	}
	for _, part := range r.parts {
		b.Merge(part)
	}
	return b, true, nil
}

// maxParts limits the parts of a bucket that are compared with each other.
const maxParts = 16

// add adds a part of a bucket to those of older files. It does not count samples twice that were
// sent again after the first copies had been folded. Either copy may be in several parts, if
// checkpoints came in between.
func (r *Reader) add(part model.Aggregate) {
	r.parts = append(r.parts, part)
	var newer model.Aggregate // of the last parts, one more in each round
	for from := len(r.parts) - 1; from > max(0, len(r.parts)-maxParts); from-- {
		newer = merged(plain(r.parts[from]), newer)
		i, n := r.sentBefore(from, &newer)
		if n == 0 {
			continue
		}
		old, newer := merged(r.parts[i:i+n]...), merged(r.parts[from:]...)
		if newer.Sketch == "" && newer.Count > 1 {
			newer.Sketch = old.Sketch
		}
		r.parts = append(append(r.parts[:i], r.parts[i+n:from]...), newer)
		return
	}
}

// sentBefore finds n consecutive parts, the first one at index i and all before index end, that
// together count the same samples as newer; n is 0 if there are none.
func (r *Reader) sentBefore(end int, newer *model.Aggregate) (i, n int) {
	for i := max(0, len(r.parts)-maxParts); i < end; i++ {
		var old model.Aggregate
		for k := i; k < end && old.Count < newer.Count; k++ {
			if old = merged(old, plain(r.parts[k])); sentAgain(&old, newer) {
				return i, k + 1 - i
			}
		}
	}
	return 0, 0
}

func merged(parts ...model.Aggregate) (all model.Aggregate) {
	for _, one := range parts {
		all.Merge(one)
	}
	return all
}

// plain returns an aggregate without its sketch, which takes long to merge.
func plain(a model.Aggregate) model.Aggregate {
	a.Sketch = ""
	return a
}

// sentAgain reports whether parts of a bucket count the samples of older ones again. Their last
// samples then have the same time, and the newer one is valid. A single sample may have a new
// value; several are recognised only if everything else is the same.
func sentAgain(old, part *model.Aggregate) bool {
	if old.LastMS != part.LastMS || old.Count != part.Count {
		return false
	}
	return part.Count == 1 || old.Last == part.Last && old.Min == part.Min && old.Max == part.Max &&
		(math.Float64bits(old.Sum) == math.Float64bits(part.Sum) || math.Abs(old.Sum-part.Sum) <= sumError*float64(part.Count)*max(math.Abs(part.Min), math.Abs(part.Max), math.Abs(part.Sum)))
}

// sumError bounds the relative error of a sum: sums of the same numbers in another order differ by
// no more.
const sumError = 1e-14

// minRun is the fewest buckets that are worth a block of their own.
const minRun = 64

// Run returns the next buckets of one source without copying them, as long as no other
// source has buckets in between. There may be none even if Next has some. They are valid
// until the following call of Run or Next.
func (r *Reader) Run() (cols model.Aggregates, stepMS int64, err error) {
	if err := r.fill(); err != nil || r.Sketches || r.flip != 0 {
		return cols, 0, err
	}
	first := r.first()
	if first == nil || len(first.Deletions) > 0 {
		return cols, 0, nil
	}
	n := first.left
	for _, s := range r.sources {
		if s != first && s.left > 0 {
			times, bound := first.cols.StartMS[first.at:][:n], s.cols.StartMS[s.at]
			n = sort.Search(n, func(i int) bool { return times[i] >= bound })
		}
	}
	if n < minRun {
		return cols, 0, nil
	}
	cols = first.cols.Slice(first.at, first.at+n)
	first.skip(n)
	return cols, first.StepMS, nil
}

func (r *Reader) first() (first *Source) {
	for _, s := range r.sources {
		if s.left == 0 {
			continue
		}
		if first == nil || r.before(s, first) {
			first = s
		}
	}
	return first
}

func (r *Reader) before(a, b *Source) bool {
	x, y := a.cols.StartMS[a.at]^r.flip, b.cols.StartMS[b.at]^r.flip
	return x < y || x == y && a.StepMS > b.StepMS
}
