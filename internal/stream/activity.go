package stream

import "sync"

// An Activity counts activities in progress. Unlike with a sync.WaitGroup, new ones
// may begin while someone waits.
type Activity struct {
	mu sync.Mutex
	n  int
	// waiters are closed and dropped whenever n falls to 0.
	waiters []chan struct{}
}

// Begin counts one more.
func (a *Activity) Begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
}

// End counts one less.
func (a *Activity) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n > 0 {
		return
	}
	for _, w := range a.waiters {
		close(w)
	}
	a.waiters = nil
}

// None returns a channel that is closed once nothing is in progress.
func (a *Activity) None() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := make(chan struct{})
	if a.n == 0 {
		close(w)
	} else {
		a.waiters = append(a.waiters, w)
	}
	return w
}
