package stream

import "sync"

// An Activity counts what is going on. Unlike a sync.WaitGroup it may be waited
// for while more begins.
type Activity struct {
	mu sync.Mutex
	n  int
	// waiters are closed and forgotten whenever n falls to 0.
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

// None returns a channel that is closed once nothing is going on.
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
