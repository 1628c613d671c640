package spool

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/store"
	"varve/internal/wal"
)

// markLocked logs a mark, as a part of g. The order lock must be held.
func (s *Spool) markLocked(typ byte, m mark, g *Generation) entry {
	m.floorMS, m.drained, m.from = s.order.floorMS, s.drainedNumber.Load(), s.order.from
	s.order.mark = m.append(s.order.mark[:0])
	s.logged(g, markSize)
	log := s.log.Load()
	return entry{log, log.Append(typ, s.order.mark)}
}

// logFloorLocked makes the floor, and what is known to be drained, outlive the
// process. The order lock must be held.
func (s *Spool) logFloorLocked() entry {
	return s.markLocked(typeFloor, mark{number: s.order.number}, s.active.Load())
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

// openLog opens the log for appending, behind what is there, and gives up what
// is not needed.
func (s *Spool) openLog() error {
	log, err := s.newLog()
	if err != nil {
		return err
	}
	s.order.Lock()
	s.log.Store(log)
	err = s.rotateLocked()
	s.order.from = max(s.order.from, 1)
	if g := s.active.Load(); err == nil && g.Samples() > 0 && g.firstMS == 0 {
		err = s.cutLocked() // its samples have no stamps, others will
	}
	if err == nil {
		s.followClockLocked()
	}
	logged := s.logFloorLocked()
	s.order.Unlock()
	if err != nil {
		return err
	}
	if err := logged.wait(s.ctx); err != nil {
		return err
	}
	if len(s.frozen) > 0 || s.active.Load().Samples() > 0 {
		return nil // what is drained is given up with the next generation
	}
	s.active.Load().segment = s.order.segment
	return s.giveUp(s.order.segment)
}

func (s *Spool) newLog() (*wal.Log, error) {
	return wal.Open(s.fs, s.path(logName), s.cfg.Log, wal.Options{
		Registerer: s.options.Registerer, Logger: s.logger, From: s.order.from,
	})
}

// rotateLocked begins a log segment unless one has just begun. The order lock
// must be held.
func (s *Spool) rotateLocked() error {
	segment, err := s.log.Load().Rotate()
	if err != nil {
		return fmt.Errorf("start a log segment: %w", err)
	}
	s.order.segment, s.order.sinceRotate = segment, 0
	return nil
}

// reopenLog puts a new log in place of one that failed for lack of space.
//
// Whatever was acknowledged is in the old segments, which are replayed before
// the new ones. The ends of generations that the old log did not get to disk are
// logged again. So is the begin of the active one: what introduced its series may
// be lost, and a new generation introduces all it uses.
func (s *Spool) reopenLog() error {
	s.files.Lock()
	defer s.files.Unlock()
	old := s.log.Load()
	old.Close() // its error is the reason for this call
	log, err := s.newLog()
	if err != nil {
		return err
	}
	logged, err := s.beginLog(log, old)
	if err == nil {
		err = logged.wait(s.ctx)
	}
	if err != nil {
		return errors.Join(err, log.Discard())
	}
	poke(s.pokeDrainer)
	return nil
}

// beginLog puts an empty log in place of an old one. It returns the last record
// that it has written, for which the caller waits.
func (s *Spool) beginLog(log, old *wal.Log) (entry, error) {
	s.order.Lock()
	defer s.order.Unlock()
	s.log.Store(log)
	if err := s.rotateLocked(); err != nil {
		return entry{}, err
	}
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	for _, g := range frozen {
		if g.cut.log == old && g.cut.wait(s.ctx) != nil {
			s.cutAgainLocked(g)
		}
	}
	if s.active.Load().Samples() > 0 {
		if err := s.cutLocked(); err != nil {
			return entry{}, err
		}
	} else {
		s.active.Load().defined = idSet{}
	}
	return s.logFloorLocked(), nil
}

// cutAgainLocked logs the end of a frozen generation again. The order lock must
// be held.
func (s *Spool) cutAgainLocked(g *Generation) {
	end := s.markLocked(typeCut, mark{number: g.number, beganMS: s.beganMS(g)}, s.active.Load())
	s.mu.Lock()
	g.cut, g.end = end, s.order.segment
	s.mu.Unlock()
}

// logError turns an error of the log into the caller's. A log that failed for
// lack of space is replaced when there is some; any other failure is final,
// since nobody knows what is on disk.
func (s *Spool) logError(ctx context.Context, err error) error {
	var input *store.InputError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for the write-ahead log: %w", err)
	case errors.As(err, &input):
		return err
	case s.closed.Load() || errors.Is(err, store.ErrClosed):
		return store.ErrClosed
	case wal.NoSpace(err):
		return s.disk.Block(err)
	}
	return s.fail("the write-ahead log failed", wal.Cause(err))
}
