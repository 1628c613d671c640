package query

import (
	"iter"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// SeriesBytes is the memory that a session takes from a lease for each series that it
// collects: an entry in a List, and one in the list that the caller makes from it. The
// strings of the series belong to the store.
const SeriesBytes = 2 * 72

// A List is series in the order in which they were selected. It is held in pieces, so
// that it grows without being copied. The zero List is empty.
type List struct {
	full [][]store.Series
	last []store.Series // grows
	n    int
}

// Pieces begin with one series, which is what most selections find, and grow.
const (
	pieceGrowth = 4
	pieceMax    = 1024
)

// Len is the number of series.
func (l *List) Len() int { return l.n }

// All yields the series in order.
func (l *List) All() iter.Seq[*store.Series] {
	return func(yield func(*store.Series) bool) {
		for at := range l.pieces() {
			piece := l.piece(at)
			for i := range piece {
				if !yield(&piece[i]) {
					return
				}
			}
		}
	}
}

func (l *List) pieces() int { return len(l.full) + 1 }

func (l *List) piece(at int) []store.Series {
	if at < len(l.full) {
		return l.full[at]
	}
	return l.last
}

// Add adds a series. Memory is taken from the lease before the list grows.
func (l *List) Add(s store.Series, lease *Lease) error {
	if len(l.last) == cap(l.last) {
		size := min(pieceMax, max(1, pieceGrowth*len(l.last)))
		if err := lease.Take(int64(size) * SeriesBytes); err != nil {
			return err
		}
		if l.n > 0 {
			l.full = append(l.full, l.last)
		}
		l.last = make([]store.Series, 0, size)
	}
	l.last = append(l.last, s)
	l.n++
	return nil
}

// Collect returns the series that match and for which keep returns true; a nil keep
// keeps all. More than query.max_series matches are an error. The memory of the list,
// and of a second list of the same series, is taken from l while the list grows. Only
// the goroutine of the session may call Collect.
func (s *Session) Collect(want store.Selection, l *Lease, keep func(model.Type) bool) (list List, err error) {
	defer since(&s.trace.index, time.Now())
	seen := 0
	for one, failed := range s.limited(want) {
		if err = failed; err != nil {
			break
		}
		seen++
		if err = s.Tick(1); err == nil && (keep == nil || keep(one.Type)) {
			err = list.Add(one, l)
		}
		if err != nil {
			break
		}
	}
	s.series.Add(int64(seen))
	if err == nil {
		err = s.Yield()
	}
	return list, s.Cause(err)
}
