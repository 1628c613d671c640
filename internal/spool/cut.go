package spool

import (
	"context"
	"errors"
	"time"

	"varve/internal/units"
)

// rotateBytes is what a log segment holds at least before a cut ends it: a
// segment for each of many small generations would cost more than what is in
// them.
func (s *Spool) rotateBytes() int64 {
	return int64(min(units.MiB, s.cfg.Log.SegmentBytes/4))
}

// errUnstamped: a restart would give the generation another write timestamp.
var errUnstamped = errors.New("what an earlier version has left waits for a log that can be written")

// cutLocked freezes the active generation, which has samples, and puts a fresh
// one in place. The order lock must be held.
//
// While the log has no space the end of the generation is in memory only. It is
// logged with the next log. A process that dies before takes up the generation as
// it was, and writes the same samples under the same write timestamps once more.
func (s *Spool) cutLocked() error {
	g := s.active.Load()
	full := s.log.Full()
	if full && g.firstMS == 0 {
		return errUnstamped
	}
	// A segment that did not see the generation's begin must not see its end: what
	// is before the segment will be given up, with the series' introductions.
	if full {
		// It takes none until a new log begins.
	} else if s.order.sinceRotate >= s.rotateBytes() || g.segment != s.order.segment {
		if err := s.rotateLocked(); err != nil {
			return err
		}
	}
	stampMS := s.nextStampLocked()
	s.order.floorMS = stampMS + 1
	next := newGeneration(s.series, s.order.segment)
	end := s.markLocked(typeCut, mark{number: s.order.number, beganMS: s.beganMS(g)}, next)
	s.freeze(g, s.order.number, stampMS)
	s.order.number++
	s.mu.Lock()
	g.end, g.cut = s.order.segment, end
	s.frozen = append(s.frozen, g)
	s.held = append(s.held, next)
	s.active.Store(next)
	s.mu.Unlock()
	s.hurried.Store(false)
	poke(s.pokeDrainer)
	poke(s.pokeSpiller)
	return nil
}

// freeze fixes what is in a generation.
func (s *Spool) freeze(g *Generation, number, stampMS int64) {
	h := g.place.Load().head
	g.samples, g.number = h.Samples(), number
	g.stampMS.Store(stampMS)
	g.defined = idSet{}
	s.frozenMem.Add(g.memory())
}

// beganMS is when the first sample of a generation came, by the clock.
func (s *Spool) beganMS(g *Generation) int64 {
	if began := g.began.Load(); began != nil {
		return s.now().Add(-time.Since(*began)).UnixMilli()
	}
	return s.now().UnixMilli()
}

// busy reports whether the sink has work.
func (s *Spool) busy() bool {
	waiting, _ := s.queued()
	return waiting > 0
}

// maxFlushed is how many generations may wait for a sink in trouble when a flush cuts
// one more.
const maxFlushed = 64

// queued returns how many generations the sink has not taken, and whether one that is
// cut now may pass them by: the sink has left some of their samples, and takes others.
func (s *Spool) queued() (generations int, passable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.frozen), len(s.frozen) == 0 || isPartial(s.sinkErr)
}

// keeper cuts the active generation when it is time, and looks after space and
// idle series.
func (s *Spool) keeper(ctx context.Context) {
	linger := time.NewTimer(time.Hour)
	defer linger.Stop()
	space := time.NewTicker(spaceInterval)
	defer space.Stop()
	idle := time.NewTicker(s.options.idleInterval)
	defer idle.Stop()
	for {
		if wait, armed := s.cutDue(); armed {
			linger.Reset(wait)
		} else {
			linger.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-s.pokeKeeper:
		case <-linger.C:
			s.cutIfDue()
		case <-space.C:
			s.followClock()
			s.lookAtSpace()
			s.tidyLog()
		case <-idle.C:
			s.lookAtIdle()
		}
	}
}

// cutDue returns when the active generation is to be cut, and false if that is
// not a matter of time: while the sink has work it would only make the next
// write smaller. Where a few samples hold up the generations that wait, others must
// not wait for as long; but each one more waits a linger longer, so that in a trouble
// of a day there are hundreds and not thousands.
func (s *Spool) cutDue() (time.Duration, bool) {
	began := s.active.Load().began.Load()
	waiting, passable := s.queued()
	switch {
	case began == nil || !passable || s.log.Current().Err() != nil && !s.log.Full():
		return 0, false
	case s.hurried.Load() && waiting < maxFlushed:
		return 0, true
	case !s.started():
		return 0, false
	}
	return max(0, s.cfg.linger()*time.Duration(1+waiting)-time.Since(*began)), true
}

// started reports whether there is a sink.
func (s *Spool) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sink != nil
}

func (s *Spool) cutIfDue() {
	s.order.Lock()
	defer s.order.Unlock()
	if wait, armed := s.cutDue(); armed && wait == 0 {
		if err := s.cutLocked(); err != nil {
			s.logger.Error("cannot begin a generation", "error", err)
		}
	}
}
