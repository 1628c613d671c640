package spool

import (
	"time"

	"varve/internal/head"
)

// clockLead is how far the stamps may be ahead of the clock. If the clock is set back
// by less, stamps stand still until it has caught up. If it is set back by more, it was
// wrong before.
//
// Until the clock has caught up, samples with stamps ahead of it hide writes and deletes of the same
// samples. If stamps stand still, they hide no later writes of this process. So clockLead is longer
// than any clock step in a well-kept cluster, and shorter than a wait that an operator would not
// accept.
const clockLead = 2 * time.Minute

// stampLocked returns the write timestamp of a batch that is about to be
// appended to the active generation, which it may cut before. The order lock must
// be held.
func (s *Spool) stampLocked() int64 {
	s.followClockLocked()
	stampMS := s.nextStampLocked()
	if first := s.active.Load().firstMS; first != 0 && stampMS-first > head.MaxStampSpan {
		s.cutLocked() // an error comes from the log, so the caller's own append reports it too
		stampMS = s.nextStampLocked()
	}
	s.order.stampMS = stampMS
	return stampMS
}

// nextStampLocked returns a stamp above those of all generations before the active
// one, and not below those in it. The order lock must be held.
func (s *Spool) nextStampLocked() int64 {
	return max(s.now().UnixMilli(), s.order.floorMS+1, s.order.stampMS)
}

// followClockLocked lets stamps go back when the clock was set back by more than clockLead.
// Pending samples with stamps of the wrong clock get current stamps, in the same order; copies
// in the remote store keep their old stamps. The order lock must be held.
func (s *Spool) followClockLocked() {
	nowMS := s.now().UnixMilli()
	lead := time.Duration(max(s.order.floorMS, s.order.stampMS)-nowMS) * time.Millisecond
	if lead <= clockLead || s.options.ClockSet != nil && !s.options.ClockSet() {
		return
	}
	if s.active.Load().Samples() > 0 && s.cutLocked() != nil {
		return // the log has failed; the next append tries again
	}
	s.mu.Lock()
	waiting := s.frozenLocked()
	mostMS := nowMS + int64(len(waiting))
	limitStamps(waiting, mostMS)
	s.mu.Unlock()
	s.order.floorMS, s.order.stampMS = mostMS+1, 0
	s.logFloorLocked()
	s.logger.Warn("the clock was set back; write timestamps follow it. Until it has caught up, samples that the remote store has with later timestamps "+
		"hide new writes and deletes of the same samples", "by", lead, "generations_stamped_again", len(waiting))
}

// FollowClock lets write timestamps go back now if the clock was set back.
func (s *Spool) FollowClock() {
	s.order.Lock()
	defer s.order.Unlock()
	s.followClockLocked()
}

// limitStamps makes the stamps of generations ascend up to mostMS, by lowering
// those that are above it or above one of a later generation.
func limitStamps(frozen []*Generation, mostMS int64) {
	for i := len(frozen) - 1; i >= 0; i-- {
		g := frozen[i]
		mostMS = min(mostMS, g.stampMS.Load())
		g.stampMS.Store(mostMS)
		if g.firstMS != 0 {
			mostMS = min(mostMS, g.firstMS)
		}
		mostMS--
	}
}
