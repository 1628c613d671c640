package spool

import (
	"fmt"

	"varve/internal/notify"
	"varve/internal/safefile"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// markLocked logs a mark, and counts its bytes as g's. The order lock must be held.
func (s *Spool) markLocked(typ byte, m mark, g *Generation) writelog.Entry {
	m.floorMS, m.drained, m.from = s.order.floorMS, s.drainedNumber.Load(), s.order.from
	s.order.mark = m.append(s.order.mark[:0])
	s.logged(g, wal.RecordOverhead+markSize)
	return s.log.AppendRecord(typ, s.order.mark)
}

// logFloorLocked logs the floor and the number of the last drained generation, so that
// they survive the process. The order lock must be held.
func (s *Spool) logFloorLocked() writelog.Entry {
	return s.markLocked(typeFloor, mark{number: s.order.number}, s.active.Load())
}

// giveUp releases the log's segments before the given one, which a replay no longer needs.
// First it has the notes about their samples stored, since no replay will find these samples.
// Then it logs that a replay begins at the given segment, in case a crash leaves some of the
// released segments.
func (s *Spool) giveUp(before wal.Segment) error {
	if s.log.Full() {
		return s.clearLog() // a full log accepts no records
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

// clearLog removes all segments of a log that failed for lack of space, once all of it
// is drained. Single segments cannot be released while nothing can be logged: a replay
// would report them as lost. After a crash in the middle, the next start drains the
// remaining segments again.
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
	if err := safefile.Remove(s.fs, s.path(begunName)); err != nil {
		return err
	}
	from, err := s.log.Clear()
	s.order.Lock()
	defer s.order.Unlock()
	s.order.from = max(s.order.from, from)
	s.logBytes.Add(-g.logBytes.Swap(0))
	return err
}

// tidyLog releases the segments of a log that has grown by marks alone.
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
		s.logger.Warn("log segments could not be released; will retry with a later generation", "error", err)
	}
}

// openLog opens the log for appending after its last record, and releases the segments
// that are not needed.
//
// On a full disk the log refuses records until there is room; pending samples are still
// read and drained.
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
	if g := s.active.Load(); err == nil && g.Samples() > 0 && (g.firstMS == 0 || s.large(g)) {
		err = s.cutLocked() // its samples have no stamps, and later samples will; or its limits were higher
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
	if s.busy() || s.active.Load().Samples() > 0 {
		return nil // the drained segments are released with the next generation
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

// reopenLog replaces a log that failed for lack of space.
//
// The new log gets the ends of generations that the old log could not write. The active
// generation is cut or, if it is empty, introduces its series again, since the old log
// may have lost the introductions.
func (s *Spool) reopenLog() error {
	s.files.Lock()
	defer s.files.Unlock()
	if err := s.log.Reopen(s.ctx, s.order.from, s.beginLog); err != nil {
		return err
	}
	notify.Wake(s.pokeDrainer)
	return nil
}

// beginLog writes to a new log the records that the old one may lack. The order lock must be
// held.
func (s *Spool) beginLog(first wal.Segment) (writelog.Entry, error) {
	s.order.segment, s.order.sinceRotate = first, 0
	s.mu.Lock()
	waiting := s.frozenLocked()
	s.mu.Unlock()
	for _, g := range waiting {
		if g.cut.Wait(s.ctx) != nil { // its record was in a log that is closed
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
