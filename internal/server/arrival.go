package server

import (
	"sync"
	"time"
)

// An arrival measures how the body of a request comes in, so that a new connection can
// replace one whose body hardly arrives.
type arrival struct {
	mu      sync.Mutex
	since   time.Time     // when the handler began to wait for the client; zero if it does not wait
	waited  time.Duration // for this request, before since
	brought int64         // bytes of this request
	ended   bool          // the connection is closed for a new one
}

const (
	// arrivalPatience is how long a handler waits for a body, in all, before
	// another connection may take the place.
	arrivalPatience = time.Second

	// arrivalEnough is how many bytes of a body a second keep a connection its place
	// for as long as it takes.
	arrivalEnough = 16 << 10
)

// begin begins to measure another request.
func (a *arrival) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waited, a.brought = 0, 0
}

// wait notes that a handler waits for the body from now on.
func (a *arrival) wait(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = now
}

// got notes that the wait is over and has brought n bytes. It reports whether the
// request goes on: else the connection was closed meanwhile.
func (a *arrival) got(n int, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waited += now.Sub(a.since)
	a.brought += int64(n)
	a.since = time.Time{}
	return !a.ended
}

// Slow reports that a handler waits for the body, and has done so for long in all
// while little came. rate is in bytes a second.
func (a *arrival) Slow(now time.Time) (rate float64, slow bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() || a.ended {
		return 0, false
	}
	waited := a.waited + now.Sub(a.since)
	rate = float64(a.brought) / waited.Seconds()
	return rate, waited >= arrivalPatience && rate < arrivalEnough
}

// End makes the next got fail, unless the handler no longer waits.
func (a *arrival) End() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = a.ended || !a.since.IsZero()
	return a.ended
}
