package ingest

import (
	"context"
	"sync"
)

// A gate bounds how much of something is in use at a time. Those who do not
// fit wait in line, first come first served, so that a large one is not
// overtaken for ever.
type gate struct {
	max int64

	mu struct {
		sync.Mutex
		used    int64
		waiting []*ticket // bounded by the number of connections and requests
	}
}

type ticket struct {
	n     int64
	ready chan struct{}
}

// enter takes n, clamped to the size of the gate, and returns what leave must
// give back. It waits until ctx ends.
func (g *gate) enter(ctx context.Context, n int64) (taken int64, waited bool, err error) {
	n = min(n, g.max)
	g.mu.Lock()
	if len(g.mu.waiting) == 0 && g.mu.used+n <= g.max {
		g.mu.used += n
		g.mu.Unlock()
		return n, false, nil
	}
	t := &ticket{n: n, ready: make(chan struct{})}
	g.mu.waiting = append(g.mu.waiting, t)
	g.mu.Unlock()

	select {
	case <-t.ready:
		return n, true, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, x := range g.mu.waiting {
		if x == t {
			g.mu.waiting = append(g.mu.waiting[:i], g.mu.waiting[i+1:]...)
			g.admitLocked()
			return 0, true, ctx.Err()
		}
	}
	return n, true, nil // admitted at the same moment
}

// tryGrow takes n more without waiting.
func (g *gate) tryGrow(n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.waiting) > 0 || g.mu.used+n > g.max {
		return false
	}
	g.mu.used += n
	return true
}

func (g *gate) leave(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.used -= n
	g.admitLocked()
}

// admitLocked lets in those first in line that fit. g.mu must be held.
func (g *gate) admitLocked() {
	for len(g.mu.waiting) > 0 && g.mu.used+g.mu.waiting[0].n <= g.max {
		t := g.mu.waiting[0]
		g.mu.waiting = g.mu.waiting[1:]
		g.mu.used += t.n
		close(t.ready)
	}
}

func (g *gate) inUse() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.used
}
