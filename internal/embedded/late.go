package embedded

import (
	"varve/internal/blockfile"
	"varve/internal/retention"
)

// Whoever gets no answer sends samples again: an import that was interrupted, a relay after a
// crash of the server. As long as the first ones are in files as they were sent, the second ones
// replace them. Once they are counted in a bucket, the second ones may count as well. Samples
// that are sent in time lie in files for as long as the first stage lasts. Late ones are old
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
		late = late.And(f.Late)
	}
	return late
}

// heldBack reports whether files are not to be folded yet, because samples in them may be sent
// again: until LateHold after the last late ones. If late ones go on coming, it is twice that
// after the first ones, and less if the disk would have no room for the fold any more.
//
// The time during which the server is down does not count for those who wait for it: after each
// start no file of samples is folded for foldPause.
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

// within reports whether it is less than a span since a time. The clock may have been put back
// meanwhile: a time that is further ahead says nothing.
func within(nowMS, sinceMS, spanMS int64) bool {
	return nowMS-sinceMS < spanMS && sinceMS-nowMS < spanMS
}

// roomIsShort reports whether files, if they grow by as much as they have, cannot be folded on
// this disk. merging must be held.
func (s *Store) roomIsShort(st *state, files []*openFile) bool {
	free, known := s.disk.FreeSpace()
	return known && free < 3*mergedSize(st, files)+s.cfg.MinFreeBytes
}
