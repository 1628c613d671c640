package spool

import (
	"context"
	"errors"
	"time"

	"varve/internal/notify"
	"varve/internal/units"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// rotateBytes is the size from which a cut ends the log segment. Many small generations share a
// segment, because a segment of its own for each would cost more than its samples.
func (s *Spool) rotateBytes() int64 {
	return int64(min(units.MiB, s.cfg.Log.SegmentBytes/4))
}

// errUnstamped refuses a cut without a log: after a restart the generation would get
// another write timestamp.
var errUnstamped = errors.New("samples of an earlier version wait until the log can be written")

// cutLocked freezes the active generation, which has samples, and puts a fresh
// one in place. The order lock must be held.
//
// While the log has no space, the end of the generation is in memory only; it is
// logged once there is a new log. If the process dies before that, the next one
// replays the generation, and writes the same samples again under the same write
// timestamps.
func (s *Spool) cutLocked() error {
	g := s.active.Load()
	full := s.log.Full()
	if full && g.firstMS == 0 {
		return errUnstamped
	}
	// A segment without the beginning of the generation must not contain its end: the
	// earlier segments will be released, and with them the introductions of its series. A full
	// log accepts no records until a new log begins.
	if !full && (s.order.sinceRotate >= s.rotateBytes() || g.segment != s.order.segment) {
		if err := s.rotateLocked(); err != nil {
			return err
		}
	}
	stampMS := s.nextStampLocked()
	s.order.floorMS = stampMS + 1
	next := s.newGeneration(s.order.segment)
	end := s.markLocked(typeCut, mark{number: s.order.number, beganMS: s.beganMS(g)}, next)
	s.freeze(g, next, s.order.number, stampMS, s.order.segment, end)
	s.order.number++
	s.hurried.Store(false)
	notify.Wake(s.pokeDrainer)
	notify.Wake(s.pokeSpiller)
	return nil
}

// freeze makes the active generation immutable, and next the active one. cut is the record that ends
// it, in segment end. The order lock must be held.
func (s *Spool) freeze(g, next *Generation, number, stampMS int64, end wal.Segment, cut writelog.Entry) {
	g.samples, g.number = g.Samples(), number
	g.stampMS.Store(stampMS)
	g.defined = idSet{}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.state, g.end, g.cut = frozen, end, cut
	s.held = append(s.held, next)
	s.active.Store(next)
	s.frozenMem.Add(g.memory()) // last, so that nobody counts g twice: see memory
}

// beganMS is when the first sample of a generation arrived, by the clock. The generation must
// have samples.
func (s *Spool) beganMS(g *Generation) int64 {
	return s.now().Add(-time.Since(*g.began.Load())).UnixMilli()
}

// busy reports whether the sink has work.
func (s *Spool) busy() bool {
	waiting, _ := s.queued()
	return waiting > 0
}

// maxFlushed is the number of generations that wait for a failing sink beyond which a
// flush does not cut another one.
const maxFlushed = 64

// queued returns how many generations the sink has not written, and whether a generation that
// is cut now may overtake them because the sink fails only for some samples.
func (s *Spool) queued() (generations int, passable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.frozenLocked())
	return n, n == 0 || IsPartial(s.sinkErr)
}

// keeper cuts the active generation when it is due, checks the free space, and forgets idle
// series.
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
			s.FollowClock()
			s.lookAtSpace()
			s.tidyLog()
		case <-idle.C:
			s.lookAtIdle()
		}
	}
}

// cutDue returns when the active generation is to be cut. It returns false while the
// sink has work, since a cut by time would only make the next write smaller. If a few
// samples block the waiting generations, others are still cut by time; but each
// further generation waits one linger longer, so that an outage of a day leaves
// hundreds of generations and not thousands.
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

// started reports whether the spool has a sink.
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
