package timeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// clockLead is how far write timestamps may be ahead of a clock that is set. If they are further
// ahead, the clock was wrong when they were made. The spool of samples has the same limit.
const clockLead = 2 * time.Minute

// A clock makes write timestamps.
type clock struct {
	set atomic.Bool // Options.Changeable has returned nil

	opened time.Time // with a monotonic reading, which does not follow the clock

	mu     sync.Mutex
	last   int64 // the last write timestamp, microseconds
	wrong  int64 // the last one before they went back, 0 if they never did
	behind int64 // by how much they went back then
	unset  []interval
}

// An interval has the write timestamps of a time during which the clock was not known to be set, and
// was not set either.
type interval struct {
	first, last int64
	origin      int64 // a timestamp less the time since the process began; the largest one
	late        int64 // by how much the clock was behind then; 0 until that is known
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
		e.clock.measureLateLocked(e.now().UnixMicro())
		e.clock.set.Store(true)
	}
	return nil
}

// noteUnsetLocked records a write timestamp that was made before the clock was known to be set. c.mu
// must be held.
func (c *clock) noteUnsetLocked(stamp int64) {
	origin := stamp - time.Since(c.opened).Microseconds()
	if n := len(c.unset); n > 0 {
		if last := &c.unset[n-1]; max(origin-last.origin, last.origin-origin) <= clockLead.Microseconds() || n == unsetMax {
			last.last, last.origin = stamp, max(last.origin, origin)
			return
		}
	}
	c.unset = append(c.unset, interval{first: stamp, last: stamp, origin: origin})
}

// measureLateLocked computes by how much the clock was behind before it was set. c.mu must be held.
func (c *clock) measureLateLocked(now int64) {
	origin := now - time.Since(c.opened).Microseconds()
	for i := range c.unset {
		if late := origin - c.unset[i].origin; late > clockLead.Microseconds() {
			c.unset[i].late = late
		}
	}
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
	c.wrong, c.behind, c.last = c.last, behind, now
	e.log.Warn("the clock was set back; write timestamps of timelines follow it", "by", time.Duration(behind)*time.Microsecond)
}

// NoteAccepted tells the engine that an earlier process of this server accepted an event at a time.
func (e *Engine) NoteAccepted(at time.Time) {
	e.clock.mu.Lock()
	defer e.clock.mu.Unlock()
	e.clock.last = max(e.clock.last, at.UnixMicro())
}

// rightly returns when an event was accepted, by a clock that is right: if the clock was set back
// since, the events of before keep their order and distances and are before that moment, so that
// what was changed since then applies. If it was behind until it was set, they are later by as much,
// so that nothing applies that was changed before. A call is repeated with the same result unless
// the clock is set back again, or the process is restarted; see SetBack for the latter.
func (e *Engine) rightly(accepted time.Time) time.Time {
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	e.followLocked()
	at := accepted.UnixMicro()
	for _, u := range c.unset {
		if u.first <= at && at <= u.last && u.late > 0 {
			return time.UnixMicro(at + u.late)
		}
	}
	return time.UnixMicro(c.backLocked(at, e.now().UnixMicro()))
}

// backLocked returns a time of acceptance by a clock that is right, if it is of a clock that was far
// ahead and was set back since. c.mu must be held.
func (c *clock) backLocked(at, now int64) int64 {
	if c.wrong == 0 || at > c.wrong || at-now <= clockLead.Microseconds() {
		return at
	}
	return at - c.behind
}

// SetBack gives accepted events the times of acceptance that AppendAccepted would put them with, if
// they are of a clock that was far ahead and was set back since, and reports whether there are any.
// An earlier process cannot tell a later one by how much it was set back. So that an event is put
// with the same time after a restart, the caller stores these times before it puts the events.
func (e *Engine) SetBack(ctx context.Context, accepted []Accepted) (moved bool, err error) {
	if err := e.changeable(ctx); err != nil {
		return false, err
	}
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	e.followLocked()
	now := e.now().UnixMicro()
	for i := range accepted {
		at := accepted[i].At.UnixMicro()
		if right := c.backLocked(at, now); right != at {
			accepted[i].At, moved = time.UnixMicro(right), true
		}
	}
	return moved, nil
}
