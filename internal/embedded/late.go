package embedded

import (
	"varve/internal/blockfile"
	"varve/internal/retention"
)

// A client that gets no answer sends its samples again: an interrupted import, or a relay after
// the server crashed. While the first copies are in files as samples, the second copies replace
// them. Once a bucket has counted the first copies, it may count the second ones as well. Samples
// that arrive in time stay in files for as long as the first stage lasts. Late samples are old
// enough for a coarser stage when they arrive, so they are held back for Config.LateHold.

// lateOf returns the current time twice if some samples of a head were old enough for a coarser
// stage when they arrived, else none.
func (s *Store) lateOf(sw *swap) (late blockfile.Late) {
	book := s.book()
	if book == nil || len(book.Rules) == 0 || s.cfg.LateHold == 0 {
		return late
	}
	borders := map[*retention.Rule]int64{}
	for id := range sw.head.Series() {
		rule := s.policyOf(id).Rule
		if rule == nil {
			continue
		}
		border, ok := borders[rule]
		if !ok {
			border = rule.Stages.Plan(sw.since.UnixMilli()).Border(0)
			borders[rule] = border
		}
		if span, _ := sw.head.Span(id); span.StartMS < border {
			nowMS := s.now().UnixMilli()
			return blockfile.Late{FirstMS: nowMS, LastMS: nowMS}
		}
	}
	return late
}

// lateIn returns when files got late samples.
func lateIn(files []*openFile) (late blockfile.Late) {
	for _, f := range files {
		late = late.Union(f.Late)
	}
	return late
}

// heldBack reports whether files are not to be folded yet, because samples in them may be sent
// again. They wait until LateHold after the last late ones, but no longer than twice LateHold after
// the first ones, and not if the disk might otherwise get too full for the fold.
//
// Clients may also have waited while the server was down, for any time: so after each start no
// file of samples is folded for foldPause.
func (s *Store) heldBack(st *state, files []*openFile, nowMS int64) bool {
	hold := s.cfg.LateHold.Milliseconds()
	if files[0].StepMS != 0 || hold == 0 {
		return false
	}
	late := lateIn(files)
	held := within(nowMS, s.opened.UnixMilli(), min(hold, foldPause.Milliseconds())) ||
		within(nowMS, late.LastMS, hold) && within(nowMS, late.FirstMS, 2*hold)
	return held && !s.roomIsShort(st, files)
}

// within reports whether a time is less than a span ago. The clock may have been set back
// meanwhile: a time further ahead than the span says nothing.
func within(nowMS, sinceMS, spanMS int64) bool {
	return nowMS-sinceMS < spanMS && sinceMS-nowMS < spanMS
}

// roomIsShort reports whether files, if they grow by as much as they have, cannot be folded on
// this disk. merging must be held.
func (s *Store) roomIsShort(st *state, files []*openFile) bool {
	free, known := s.disk.FreeSpace()
	return known && free < 3*mergedSize(st, files)+s.cfg.MinFreeBytes
}
