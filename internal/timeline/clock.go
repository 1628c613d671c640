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

	mu     sync.Mutex
	last   int64 // the last write timestamp, microseconds
	wrong  int64 // the last one before they went back, 0 if they never did
	behind int64 // by how much they went back then
}

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
	e.clock.set.Store(true)
	return nil
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
// what was changed since then applies. A call is repeated with the same result unless the clock is
// set back again, or the process is restarted.
func (e *Engine) rightly(accepted time.Time) time.Time {
	c := &e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	e.followLocked()
	at := accepted.UnixMicro()
	if c.wrong == 0 || at > c.wrong || at-e.now().UnixMicro() <= clockLead.Microseconds() {
		return accepted
	}
	return time.UnixMicro(at - c.behind)
}
