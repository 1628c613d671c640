package timeline

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// clockLead is how far write timestamps may be ahead of a set clock. If they are further ahead,
// the clock was wrong when they were made. The spool of samples has the same limit.
const clockLead = 2 * time.Minute

// A clock makes write timestamps, which ascend. The machine's clock may be wrong after a start, until
// Options.Changeable has returned nil. Then it is set for good:
//
//	           Changeable is nil
//	not set ---------------------> set <---+ set back by more than clockLead: stamps follow it,
//	stamps never go back;           |      | and back says so
//	unset has their intervals       +------+
//
// Events that were acknowledged with a wrong clock are put with corrected stamps, see Right.
type clock struct {
	set atomic.Bool

	opened time.Time // with a monotonic reading, which does not follow the clock

	mu    sync.Mutex
	last  int64 // the last write timestamp, microseconds
	back  SetBack
	unset []interval
	right int64 // origin of the clock when it was set, see interval
}

// A SetBack says that write timestamps went back, because the clock was set back by much. The zero
// value says that they never did.
type SetBack struct {
	last int64 // the last write timestamp before that, microseconds
	by   int64 // by how much they went back, microseconds
}

// An interval has the write timestamps of a period in which the clock was not known to be set and
// was not adjusted.
type interval struct {
	first, last int64
	origin      int64 // a timestamp less the time since the process began; the largest one
}

// unsetMax is how many intervals are kept. The clock is set once or twice after a start.
const unsetMax = 16

// changeable returns why nothing may be changed now. It is called before the write timestamp of a
// change is made: one from before the clock was set would hide later changes for as long as the
// clock was ahead.
func (e *Engine) changeable(ctx context.Context) error {
	if e.options.Changeable == nil || e.clock.set.Load() {
		return nil
	}
	if err := e.options.Changeable(ctx); err != nil {
		return err
	}
	e.clock.mu.Lock()
	defer e.clock.mu.Unlock()
	if !e.clock.set.Load() {
		e.clock.right = e.clock.origin(e.now().UnixMicro())
		e.clock.set.Store(true)
	}
	return nil
}

// origin returns a time less the time since the process began.
func (c *clock) origin(at int64) int64 { return at - time.Since(c.opened).Microseconds() }

// noteUnsetLocked records a write timestamp that was made before the clock was known to be set. c.mu
// must be held.
func (c *clock) noteUnsetLocked(stamp int64) {
	origin := c.origin(stamp)
	if n := len(c.unset); n > 0 {
		if last := &c.unset[n-1]; max(origin-last.origin, last.origin-origin) <= clockLead.Microseconds() || n == unsetMax {
			last.last, last.origin = stamp, max(last.origin, origin)
			return
		}
	}
	c.unset = append(c.unset, interval{first: stamp, last: stamp, origin: origin})
}

// stamp returns a write timestamp: the current time, but always later than every stamp
// before. So the later of two requests wins, even if the clock was set back in between, unless
// followLocked finds that it was wrong before.
func (e *Engine) stamp() time.Time {
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	e.followLocked()
	c.last = max(e.now().UnixMicro(), c.last+1)
	if e.options.Changeable != nil && !c.set.Load() {
		c.noteUnsetLocked(c.last)
	}
	return time.UnixMicro(c.last)
}

// followLocked lets write timestamps go back if the clock is set and they are far ahead of it.
// e.clock.mu must be held.
func (e *Engine) followLocked() {
	c, now := &e.clock, e.now().UnixMicro()
	behind := c.last - now
	if behind <= clockLead.Microseconds() || !c.set.Load() {
		return
	}
	c.back, c.last = SetBack{c.last, behind}, now
	e.log.Warn("the clock was set back; write timestamps of timelines follow it", "by", time.Duration(behind)*time.Microsecond)
}

// NoteAccepted tells the engine that an earlier process of this server accepted an event at a time.
func (e *Engine) NoteAccepted(at time.Time) {
	c, now := &e.clock, e.now().UnixMicro()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, c.back.right(at.UnixMicro(), now))
}

// NoteSetBack tells the engine that an earlier process of this server found that the clock was set
// back, after it had accepted the events that NoteAccepted was called for.
func (e *Engine) NoteSetBack(s SetBack) {
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.back = s; c.last <= s.last {
		c.last = s.last - s.by
	}
}

// Right returns when an event was accepted, by a correct clock. If the clock was set back since, the
// events accepted before keep their order and distances, and end before that moment, so that later
// changes apply to them. If the clock was behind until it was set, the events move forward by the
// difference, so that no earlier change applies to them. A repeated call has the same result unless
// the clock is set back again or the process is restarted: see SetBack. Applying Right to a result
// changes nothing, unless the clock was behind for longer than the amount by which it was behind: then
// the clock itself has shown some of the results. AppendAccepted calls Right itself. A caller needs
// Right only to store the event for longer than what SetBack returned.
func (e *Engine) Right(accepted time.Time) time.Time {
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	e.followLocked()
	at := accepted.UnixMicro()
	for _, u := range c.unset {
		if late := c.right - u.origin; c.set.Load() && u.first <= at && at <= u.last && late > clockLead.Microseconds() {
			return time.UnixMicro(at + late)
		}
	}
	return time.UnixMicro(c.back.right(at, e.now().UnixMicro()))
}

// right converts a time of acceptance to that of a correct clock, if the clock was far ahead and was
// set back since. Converting a result again does not change it. A time that the corrected clock has
// already passed looks correct, and stays.
func (s SetBack) right(at, now int64) int64 {
	if s.last == 0 || at > s.last || at-now <= clockLead.Microseconds() {
		return at
	}
	return at - s.by
}

// SetBack returns how the clock was last set back. A later process cannot find this out. The caller
// stores the result before it puts accepted events, and a later process passes it to NoteSetBack, so
// that both put the events with the same times.
func (e *Engine) SetBack(ctx context.Context) (SetBack, error) {
	if err := e.changeable(ctx); err != nil {
		return SetBack{}, err
	}
	e.clock.mu.Lock()
	defer e.clock.mu.Unlock()
	e.followLocked()
	return e.clock.back, nil
}

// Append appends the form in which SetBack is stored: two varints, microseconds.
func (s SetBack) Append(dst []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(dst, s.last), s.by)
}

// ParseSetBack is the inverse of Append.
func ParseSetBack(b []byte) (SetBack, error) {
	c := Cutter{Rest: b}
	s := SetBack{c.Varint(), c.Varint()}
	if c.Bad || len(c.Rest) > 0 || s.by <= 0 {
		return SetBack{}, errors.New("not a time at which a clock was set back")
	}
	return s, nil
}
