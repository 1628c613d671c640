package spool

import (
	"context"
	"fmt"
	"time"

	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// rotateBytes is what a log segment holds at least before a cut ends it: a
// segment for each of many small generations would cost more than what is in
// them.
func (s *Spool) rotateBytes() int64 {
	return int64(min(units.MiB, s.cfg.Log.SegmentBytes/4))
}

// cutLocked freezes the active generation, which has samples, and puts a fresh
// one in place. The order lock must be held.
func (s *Spool) cutLocked() error {
	g := s.active.Load()
	// A segment that did not see the generation's begin must not see its end: what
	// is before the segment will be given up, with the series' introductions.
	if s.order.sinceRotate >= s.rotateBytes() || g.segment != s.order.segment {
		if err := s.rotateLocked(); err != nil {
			return err
		}
	}
	stampMS := s.nextStampLocked()
	s.order.floorMS = stampMS + 1
	next := newGeneration(s.series, s.order.segment)
	end := s.markLocked(typeCut, mark{stampMS: stampMS, beganMS: s.beganMS(g)}, next)
	s.freeze(g, stampMS)
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
func (s *Spool) freeze(g *Generation, stampMS int64) {
	h := g.place.Load().head
	g.samples = h.Samples()
	g.stampMS.Store(stampMS)
	g.defined = idSet{}
	s.frozenMem.Add(h.Bytes())
}

// nextStampLocked returns a stamp above all before. The order lock must be held.
func (s *Spool) nextStampLocked() int64 { return max(s.now().UnixMilli(), s.order.floorMS+1) }

// beganMS is when the first sample of a generation came, by the clock.
func (s *Spool) beganMS(g *Generation) int64 {
	if began := g.began.Load(); began != nil {
		return s.now().Add(-time.Since(*began)).UnixMilli()
	}
	return s.now().UnixMilli()
}

// Flush returns when everything that was appended before it was called is in
// the remote store, and will not be taken for undrained by another process. The
// stamp is above those of all that, and below those of all that is appended after
// Flush has returned. An error is that of ctx, that of the log, or
// store.ErrClosed.
//
// While the sink is busy the active generation is not cut but marked as wanted:
// all who flush meanwhile share it.
func (s *Spool) Flush(ctx context.Context) (stampMS int64, err error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	last, stampMS, err := s.beginFlush()
	if err != nil {
		return 0, s.logError(ctx, err)
	}
	if last != nil {
		poke(s.pokeKeeper)
		if err := s.waitDrained(ctx, last); err != nil {
			return 0, err
		}
		if stampMS == 0 {
			stampMS = last.StampMS() + 1 // the floor of its cut
		}
	}
	s.order.Lock()
	logged := s.logFloorLocked()
	s.order.Unlock()
	if err := logged.wait(ctx); err != nil {
		return 0, s.logError(ctx, err)
	}
	return stampMS, nil
}

// beginFlush returns the last generation with samples, nil if there is none,
// and a stamp, 0 if it is to be the one after that generation's.
func (s *Spool) beginFlush() (last *Generation, stampMS int64, err error) {
	s.order.Lock()
	defer s.order.Unlock()
	if g := s.active.Load(); g.Samples() > 0 {
		if s.busy() {
			s.hurried.Store(true)
			return g, 0, nil
		}
		return g, 0, s.cutLocked()
	}
	s.order.floorMS = s.nextStampLocked()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.frozen); n > 0 {
		last = s.frozen[n-1]
	}
	return last, s.order.floorMS, nil
}

// busy reports whether the sink has work.
func (s *Spool) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.frozen) > 0
}

// logFloorLocked makes the floor, and what is known to be drained, outlive the
// process. The order lock must be held.
func (s *Spool) logFloorLocked() entry { return s.markLocked(typeFloor, mark{}, s.active.Load()) }

// markLocked logs a mark, as a part of g. The order lock must be held.
func (s *Spool) markLocked(typ byte, m mark, g *Generation) entry {
	m.floorMS, m.drainedMS, m.from = s.order.floorMS, s.drainedMS.Load(), s.order.from
	s.order.mark = m.append(s.order.mark[:0])
	s.logged(g, markSize)
	log := s.log.Load()
	return entry{log, log.Append(typ, s.order.mark)}
}

// giveUp releases the log's segments before the given one. A log that is
// replayed from there needs none of them; so that this is where a replay begins
// if a crash leaves some of them, it is logged before.
func (s *Spool) giveUp(before wal.Segment) error {
	s.order.Lock()
	if before <= s.order.from {
		s.order.Unlock()
		return nil
	}
	s.order.from = before
	logged := s.logFloorLocked()
	s.order.Unlock()
	if err := logged.wait(s.ctx); err != nil {
		return err
	}
	s.files.Lock()
	defer s.files.Unlock()
	return s.log.Load().Release(before)
}

func (s *Spool) waitDrained(ctx context.Context, g *Generation) error {
	log := s.log.Load()
	failed := log.Failed()
	for {
		select {
		case <-g.done:
			return nil
		case <-s.ctx.Done():
			return store.ErrClosed
		case <-failed:
			if err := s.endOf(ctx, log, g); err != nil {
				return s.logError(ctx, err)
			}
			failed = nil
		case <-ctx.Done():
			if err := s.Health().SinkError; err != nil {
				return fmt.Errorf("wait until the remote store has taken %d samples (it says: %v): %w", s.Health().Samples, err, ctx.Err())
			}
			return fmt.Errorf("wait until the remote store has taken all samples: %w", ctx.Err())
		}
	}
}

// endOf returns why the end of a generation is not in a log that failed, nil if
// it is there, or in the one after it.
func (s *Spool) endOf(ctx context.Context, failed *wal.Log, g *Generation) error {
	s.mu.Lock()
	end := g.cut
	s.mu.Unlock()
	if g.StampMS() == 0 { // it can not be cut
		return failed.Err()
	}
	return end.wait(ctx)
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
			s.lookAtSpace()
			s.tidyLog()
		case <-idle.C:
			s.lookAtIdle()
		}
	}
}

// cutDue returns when the active generation is to be cut, and false if that is
// not a matter of time: while the sink has work it would only make the next
// write smaller.
func (s *Spool) cutDue() (time.Duration, bool) {
	began := s.active.Load().began.Load()
	switch {
	case began == nil || s.busy() || s.log.Load().Err() != nil:
		return 0, false
	case s.hurried.Load():
		return 0, true
	case !s.started():
		return 0, false
	}
	return max(0, s.cfg.linger()-time.Since(*began)), true
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
			s.logger.Error("can not begin a generation", "error", err)
		}
	}
}

// tidyLog gives up a log that has grown by marks alone.
func (s *Spool) tidyLog() {
	s.order.Lock()
	g := s.active.Load()
	if s.busy() || g.Samples() > 0 || s.order.sinceRotate < s.rotateBytes() || s.rotateLocked() != nil {
		s.order.Unlock()
		return
	}
	g.segment = s.order.segment
	s.logBytes.Add(-g.logBytes.Swap(0))
	segment := s.order.segment
	s.order.Unlock()
	if err := s.giveUp(segment); err != nil && s.ctx.Err() == nil {
		s.logger.Warn("give up log segments; it is tried again with a later generation", "error", err)
	}
}
