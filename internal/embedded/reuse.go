package embedded

import (
	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
)

// vacated are ids that nothing durable and nothing in memory refers to, except
// readers that hold the state of that time or an older state.
type vacated struct {
	ids   *roaring.Bitmap
	state uint64
}

// reuseIDs lets the registry give ids of forgotten series to new ones, in a store
// that has given out very many. It comes after a checkpoint. An id is given again
// when
//
//   - the catalogue has removed its series, so that neither the catalogue nor the
//     part of the log that is replayed names it;
//   - no file and no head has samples of it, and no deletion that is still needed
//     names it;
//   - each state that was held at that moment is released: a reader may have found
//     the series in the index before, and must not read another's samples.
//
// The registry then moves the epoch, so that no batch reaches another series.
// checkpointing must be held.
func (s *Store) reuseIDs() {
	if v := s.vacated; v != nil {
		if s.oldestState() <= v.state {
			return
		}
		s.vacated = nil
		s.policies.forget()
		s.series.Reuse(v.ids)
	}
	v, next := s.vacantIDs(s.vacantFrom)
	if s.vacated = v; v == nil {
		return
	}
	// Files may keep the same ids for years. The next search then covers the ids
	// after them.
	if s.vacantFrom = 0; v.ids.GetCardinality() < fewVacant {
		s.vacantFrom = next
	}
}

// fewVacant is the number of free ids that makes another search from the lowest id worthwhile.
// Low ids are given out first, because pages that are in use have room for them.
const fewVacant = 1 << 20

// oldestState returns the number of the oldest state that is held.
func (s *Store) oldestState() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := s.current.number
	for st := range s.held {
		oldest = min(oldest, st.number)
	}
	return oldest
}

// vacantIDs returns ids of forgotten series that only readers may still use, nil if
// none are needed. It searches upwards from an id, and returns where the next
// search begins.
func (s *Store) vacantIDs(from model.SeriesNumber) (v *vacated, next model.SeriesNumber) {
	ids, next := s.series.Vacant(from)
	if ids == nil {
		return nil, from
	}
	s.installing.Lock() // samples stay where they are
	defer s.installing.Unlock()
	s.order.Lock()
	uncommitted := s.order.forget // only grows, until the next swap
	st := s.acquire()
	s.order.Unlock()
	defer s.release(st)
	ids.AndNot(setOf(uncommitted))
	for _, f := range st.files {
		ids.AndNot(f.Series)
	}
	for _, d := range st.deletions() {
		ids.AndNot(d.IDs)
	}
	if st.frozen != nil {
		for id := range st.frozen.Series() {
			ids.Remove(uint32(id))
		}
	}
	for id := range st.active.Series() {
		ids.Remove(uint32(id))
	}
	return &vacated{ids, st.number}, next
}
