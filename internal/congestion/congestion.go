// Package congestion distinguishes a queue that is long for a moment, as after a burst, from
// one that stays long because more callers arrive than are served. As in CoDel (RFC 8289), the
// measure is how long the callers that are served have waited, not how many wait. If for a while
// no caller was served soon, every caller would wait until a timeout, and most would then be
// refused. In this state, refusing some callers early serves the others in time.
package congestion

import (
	"sync/atomic"
	"time"
)

// A Patience is the longest time that a caller waits in a line. The other times of the line
// are parts of it.
type Patience time.Duration

// Soon is the wait up to which a caller counts as served soon.
func (p Patience) Soon() time.Duration { return time.Duration(p / 20) }

// While is the time after which a line counts as congested if no caller was served
// soon in it.
func (p Patience) While() time.Duration { return time.Duration(p / 2) }

// Enough is the longest wait in a congested line.
func (p Patience) Enough() time.Duration { return time.Duration(p / 5) }

// A Line remembers when a line was short for the last time. Its methods may be called by
// many goroutines at once.
type Line struct {
	short atomic.Int64 // nanoseconds since 1970
}

// Short notes that the line is short: a caller finds it empty.
func (l *Line) Short(now time.Time) { l.short.Store(now.UnixNano()) }

// Served notes that a caller got through after a wait.
func (l *Line) Served(now time.Time, waited time.Duration, p Patience) {
	if waited <= p.Soon() {
		l.Short(now)
	}
}

// Congested reports whether the line has not been short for a while. Short must have been
// called before.
func (l *Line) Congested(now time.Time, p Patience) bool {
	return now.UnixNano()-l.short.Load() > int64(p.While())
}
