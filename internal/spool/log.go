package spool

import (
	"fmt"

	"varve/internal/wal"
	"varve/internal/writelog"
)

// markLocked logs a mark, as a part of g. The order lock must be held.
func (s *Spool) markLocked(typ byte, m mark, g *Generation) writelog.Entry {
	m.floorMS, m.drained, m.from = s.order.floorMS, s.drainedNumber.Load(), s.order.from
	s.order.mark = m.append(s.order.mark[:0])
	s.logged(g, wal.RecordOverhead+markSize)
	return s.log.AppendRecord(typ, s.order.mark)
}

// logFloorLocked makes the floor, and what is known to be drained, outlive the
// process. The order lock must be held.
func (s *Spool) logFloorLocked() writelog.Entry {
	return s.markLocked(typeFloor, mark{number: s.order.number}, s.active.Load())
}

// giveUp releases the log's segments before the given one. A log that is
// replayed from there needs none of them; so that this is where a replay begins
// if a crash leaves some of them, it is logged before. Before that, notes about what is
// in them are stored: no replay finds it any more.
func (s *Spool) giveUp(before wal.Segment) error {
	if s.log.Full() {
		return s.clearLog() // nothing can be logged
	}
	if s.gaveUp(before) {
		return nil
	}
	if err := s.notes.Trim(s.ctx); err != nil {
		return err
	}
	s.order.Lock()
	s.order.from = max(s.order.from, before)
	logged := s.logFloorLocked()
	s.order.Unlock()
	if err := logged.Wait(s.ctx); err != nil {
		return err
	}
	s.files.Lock()
	defer s.files.Unlock()
	return s.log.Current().Release(before)
}

func (s *Spool) gaveUp(before wal.Segment) bool {
	s.order.Lock()
	defer s.order.Unlock()
	return before <= s.order.from
}

// clearLog removes the segments of a log that failed for lack of space, once nothing
// waits. Parts of it cannot be given up while nothing can be logged: a replay would
// take them for lost. After a crash in the middle it drains again what is still there.
func (s *Spool) clearLog() error {
	s.files.Lock()
	defer s.files.Unlock()
	s.order.Lock()
	g := s.active.Load()
	clear := s.log.Full() && !s.busy() && g.Samples() == 0
	s.order.Unlock()
	if !clear {
		return nil
	}
	if err := s.notes.Trim(s.ctx); err != nil {
		return err
	}
	from, err := s.log.Clear()
	s.order.Lock()
	defer s.order.Unlock()
	s.order.from = max(s.order.from, from)
	s.logBytes.Add(-g.logBytes.Swap(0))
	return err
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
//
// On a full disk it opens as a log that takes nothing until there is room: what waits
// is read and drained meanwhile.
func (s *Spool) openLog() error {
	err := s.log.Open(s.order.from)
	if err == nil {
		err = s.beginFirst()
	}
	if !wal.NoSpace(err) {
		return err
	}
	return s.log.OpenFull(err)
}

// beginFirst begins the log of this process.
func (s *Spool) beginFirst() error {
	s.order.Lock()
	err := s.rotateLocked()
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
	if err := logged.Wait(s.ctx); err != nil {
		return err
	}
	if len(s.frozen) > 0 || s.active.Load().Samples() > 0 {
		return nil // what is drained is given up with the next generation
	}
	s.active.Load().segment = s.order.segment
	return s.giveUp(s.order.segment)
}

// rotateLocked begins a log segment unless one has just begun. The order lock
// must be held.
func (s *Spool) rotateLocked() error {
	segment, err := s.log.Current().Rotate()
	if err != nil {
		return fmt.Errorf("start a log segment: %w", err)
	}
	s.order.segment, s.order.sinceRotate = segment, 0
	return nil
}

// reopenLog puts a new log in the place of one that failed for lack of space.
//
// The ends of generations that the old log did not get to disk are logged again. So is
// the begin of the active one: what introduced its series may be lost, and a new
// generation introduces all it uses.
func (s *Spool) reopenLog() error {
	s.files.Lock()
	defer s.files.Unlock()
	if err := s.log.Reopen(s.ctx, s.order.from, s.beginLog); err != nil {
		return err
	}
	poke(s.pokeDrainer)
	return nil
}

// beginLog logs in a new log what the old one may lack. The order lock must be held.
func (s *Spool) beginLog(first wal.Segment) (writelog.Entry, error) {
	s.order.segment, s.order.sinceRotate = first, 0
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	for _, g := range frozen {
		if g.cut.Wait(s.ctx) != nil { // it was in a log that is closed
			s.cutAgainLocked(g)
		}
	}
	if s.active.Load().Samples() > 0 {
		if err := s.cutLocked(); err != nil {
			return writelog.Entry{}, err
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
