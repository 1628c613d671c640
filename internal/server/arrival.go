package server

import (
	"sync"
	"time"
)

// An arrival measures how fast the body of a request arrives, so that a new connection can replace
// one whose body arrives too slowly.
type arrival struct {
	mu      sync.Mutex
	since   time.Time     // when the handler began to wait for the client; zero if it does not wait
	waited  time.Duration // for this request, before since
	brought int64         // bytes of this request
	ended   bool          // the connection is closed for a new one
}

const (
	// arrivalPatience is the total time that a handler waits for a body before another connection
	// may take its place.
	arrivalPatience = time.Second

	// arrivalEnough is the rate, in bytes per second, at which a connection keeps its place however
	// long the body takes.
	arrivalEnough = 16 << 10
)

// begin starts to measure another request.
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

// got records that the wait has ended and brought n bytes. It returns false if the connection was
// closed meanwhile, so that the request must end.
func (a *arrival) got(n int, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waited += now.Sub(a.since)
	a.brought += int64(n)
	a.since = time.Time{}
	return !a.ended
}

// Slow reports whether a handler waits for the body, and has waited long in total while little
// arrived. rate is in bytes per second.
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
