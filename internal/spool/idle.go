package spool

import (
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
)

// idleBook records which series may be idle: registered, but without samples in the spool. Most
// idle series get samples again at the next push of their senders. So they stay in the index
// until a reader lists names, and in the registry until there are too many.
type idleBook struct {
	settling sync.Mutex // one settleIndex at a time

	mu      sync.Mutex
	drained *roaring.Bitmap    // series of drained generations since settleIndex
	used    *roaring.Bitmap    // series of drained generations since lookAtIdle
	next    model.SeriesNumber // series from this id on are newer than the last lookAtIdle
}

// drop records the series of a drained generation.
func (b *idleBook) drop(g *Generation) {
	ids := roaring.New()
	for id := range g.Series() {
		ids.Add(uint32(id))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drained.Or(ids)
	b.used.Or(ids)
}

// generations returns the generations that are not drained, and the drained ones that views
// still hold.
func (s *Spool) generations() (current, viewed []*Generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.undrainedLocked(), s.held[:s.viewed:s.viewed]
}

func hasSamples(held []*Generation, id model.SeriesNumber) bool {
	return slices.ContainsFunc(held, func(g *Generation) bool { return g.has(id, model.AllTime) })
}

// settleSlice is how many series are checked at a time under the order lock.
const settleSlice = 256

// settleIndex removes series without samples from the index. It reports whether some remain
// there because views still have samples of them.
func (s *Spool) settleIndex() (viewed bool) {
	b := &s.idle
	b.settling.Lock()
	defer b.settling.Unlock()
	b.mu.Lock()
	ids := b.drained
	b.drained = roaring.New()
	b.mu.Unlock()
	later := roaring.New()
	buf := make([]uint32, settleSlice)
	for it := ids.ManyIterator(); ; {
		n := it.NextMany(buf)
		if n == 0 {
			break
		}
		s.unindex(buf[:n], later)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drained.Or(later)
	return !later.IsEmpty()
}

// unindex removes the series in ids that have no samples from the index. It adds to later those
// of which only views still have samples.
func (s *Spool) unindex(ids []uint32, later *roaring.Bitmap) {
	s.order.Lock()
	defer s.order.Unlock()
	current, viewed := s.generations()
	for _, n := range ids {
		switch id := model.SeriesNumber(n); {
		case hasSamples(current, id): // recorded again when that generation is drained
		case hasSamples(viewed, id):
			later.Add(n)
		default:
			s.unindexLocked(id)
		}
	}
}

// unindexLocked removes a series from the index. The order lock must be held.
func (s *Spool) unindexLocked(id model.SeriesNumber) {
	if !s.order.indexed.remove(id) {
		return
	}
	if series, ok := s.series.Series(id); ok {
		s.index.Remove(id, series)
	}
}

// idleKeyBytes is the average length that the keys of max_idle_series series may have.
const idleKeyBytes = 1 << 10

// lookAtIdle forgets the series that have had no samples here since its last call, if they are
// too many or their keys take too much memory.
func (s *Spool) lookAtIdle() {
	b := &s.idle
	b.mu.Lock()
	used, known := b.used, b.next
	b.used, b.next = roaring.New(), s.series.NextID()
	b.mu.Unlock()
	held := slices.Concat(s.generations())
	var idle []model.SeriesNumber
	keyBytes := 0
	for _, id := range s.series.IDs() {
		if id < known && !used.Contains(uint32(id)) && !hasSamples(held, id) {
			idle = append(idle, id)
			keyBytes += len(s.series.Key(id))
		}
	}
	if len(idle) > s.cfg.MaxIdleSeries || keyBytes > s.cfg.MaxIdleSeries*idleKeyBytes {
		s.forget(idle)
	}
}

// forget removes series, unless samples have arrived meanwhile.
func (s *Spool) forget(ids []model.SeriesNumber) {
	s.order.Lock()
	defer s.order.Unlock()
	held := slices.Concat(s.generations()) // including those that only views hold, whose ids must stay valid
	gone := ids[:0]
	for _, id := range ids {
		if !hasSamples(held, id) {
			s.unindexLocked(id)
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return
	}
	s.series.Forget(gone)
	s.metrics.forgotten.Add(float64(len(gone)))
	s.logger.Info("forgot idle series", "series", len(gone))
}
