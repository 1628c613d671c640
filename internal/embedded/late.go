package embedded

import (
	"math"
	"slices"
	"time"

	"varve/internal/blockfile"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
)

// A client that gets no answer sends its samples again: an interrupted import, or a relay after
// the server crashed. While the first copies are in files as samples, the second copies replace
// them. Once a bucket has counted the first copies, it may count the second ones as well. Samples
// that arrive in time stay in files for as long as the first stage lasts. Late samples are old
// enough for a coarser stage when they arrive, so they are held back for Config.LateHold.

// lateRules returns the rules by which late samples are held back.
func (s *Store) lateRules() []retention.Rule {
	book := s.book()
	if book == nil || s.cfg.LateHold == 0 {
		return nil
	}
	return book.Rules
}

// arrivesLate reports whether some samples of a batch are old enough for a coarser stage.
func (s *Store) arrivesLate(b *store.Batch) bool {
	rules := s.lateRules()
	if len(rules) == 0 {
		return false
	}
	nowMS, border := s.now().UnixMilli(), int64(math.MinInt64)
	for i := range rules {
		border = max(border, rules[i].Stages.SamplesFromMS(nowMS))
	}
	old := func(sample store.Sample) bool { return sample.TimeMS < border }
	if !slices.ContainsFunc(b.Samples, old) {
		return false
	}
	st := s.acquire() // so that no id is reused meanwhile: see reuseIDs
	defer s.release(st)
	return slices.ContainsFunc(b.Samples, func(sample store.Sample) bool {
		return old(sample) && s.isLate(model.SeriesNumber(sample.Ref), sample.TimeMS, nowMS)
	})
}

// isLate reports whether a sample of a time is old enough for a coarser stage.
func (s *Store) isLate(id model.SeriesNumber, ms, nowMS int64) bool {
	rule := s.policyOf(id).Rule
	return rule != nil && ms < rule.Stages.SamplesFromMS(nowMS)
}

// lateOf returns the current time as both first and last if samples of a head arrived late, or may
// have arrived late by rules that are not known here; otherwise nothing. A sample is late if it was
// old enough for a coarser stage when it arrived. Samples that a start found in the log count as
// having arrived at that start.
func (s *Store) lateOf(sw *swap) (late blockfile.Late) {
	held := s.policies.unknown || sw.late
	if !held && len(s.lateRules()) > 0 {
		for id := range sw.head.Series() {
			span, _ := sw.head.Span(id)
			if held = s.isLate(id, span.StartMS, s.opened.UnixMilli()); held {
				break
			}
		}
	}
	if nowMS := s.now().UnixMilli(); held {
		late = blockfile.Late{FirstMS: nowMS, LastMS: nowMS}
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

// heldBack reports whether files must not be folded yet. gone means that a fold would only remove
// them. Just after a start, everything waits. After a change of the rules, everything waits as long
// as the disk has room for writes. Samples that may be sent again wait for LateHold after the last
// late sample, but at most twice LateHold after the first one, and do not wait if the disk might
// otherwise become too full for the fold.
func (s *Store) heldBack(st *state, files []*openFile, nowMS int64, gone bool) bool {
	if s.justOpened(nowMS) || s.rulesJustChanged(nowMS) && !s.roomIsShort(st, nil) {
		return true
	}
	hold, late := s.cfg.LateHold.Milliseconds(), lateIn(files)
	held := !gone && files[0].StepMS == 0 && within(nowMS, late.LastMS, hold) && within(nowMS, late.FirstMS, 2*hold)
	return held && !s.roomIsShort(st, files)
}

// openedHold is how long after a start the merger folds nothing, and no expired data is removed.
// Clients may have kept samples for as long as the server was down, and the clock may be wrong
// until the machine has synchronised it.
const openedHold = 10 * time.Minute

// justOpened reports whether the store was opened so recently that nothing old is folded or removed.
func (s *Store) justOpened(nowMS int64) bool {
	return within(nowMS, s.opened.UnixMilli(), min(s.cfg.LateHold, openedHold).Milliseconds())
}

// rulesJustChanged reports whether the rules changed so recently that the merger leaves all data as it is.
// merging must be held, and noteRules must have been called.
func (s *Store) rulesJustChanged(nowMS int64) bool {
	return within(nowMS, s.rulesChangedMS, min(s.cfg.LateHold, retention.ChangeHold).Milliseconds())
}

// noteRules notes when the rules changed. If the clock was set back since, they count as changed
// again. merging must be held.
func (s *Store) noteRules(book *retention.Book, nowMS int64) {
	if s.rulesSeen != book || nowMS < s.rulesChangedMS {
		s.rulesSeen, s.rulesChangedMS = book, nowMS
	}
}

// expiredMS returns the time by which samples must have expired to be removed for good. Readers do
// not see samples that have expired since.
func (s *Store) expiredMS() int64 {
	nowMS := s.now().UnixMilli()
	if s.justOpened(nowMS) {
		return 0 // nothing has expired: the clock may be wrong
	}
	return nowMS
}

// within reports whether sinceMS is less than spanMS ago. A time in the future, after the
// clock was set back, also counts, unless it is further ahead than spanMS.
func within(nowMS, sinceMS, spanMS int64) bool {
	return nowMS-sinceMS < spanMS && sinceMS-nowMS < spanMS
}

// roomIsShort reports whether the disk could no longer hold the output of a fold once the
// files have doubled in size. merging must be held.
func (s *Store) roomIsShort(st *state, files []*openFile) bool {
	free, known := s.disk.FreeSpace()
	return known && free < 3*mergedSize(st, files)+s.cfg.MinFreeBytes
}
