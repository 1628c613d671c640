package ingest

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// A gate limits how much of something is in use at a time. Callers that do not fit wait in line,
// first come first served, so that a large one is not overtaken for ever.
type gate struct {
	max  int64
	sem  *semaphore.Weighted
	used atomic.Int64
}

func newGate(most int64) *gate { return &gate{max: most, sem: semaphore.NewWeighted(most)} }

// enter takes n, clamped to the size of the gate, and returns what leave must
// give back. It waits until ctx ends.
func (g *gate) enter(ctx context.Context, n int64) (taken int64, waited bool, err error) {
	n = min(n, g.max)
	if waited = !g.sem.TryAcquire(n); waited {
		if err := g.sem.Acquire(ctx, n); err != nil {
			return 0, true, err
		}
	}
	g.used.Add(n)
	return n, waited, nil
}

// tryEnter takes n if that needs no waiting.
func (g *gate) tryEnter(n int64) bool {
	ok := g.sem.TryAcquire(n)
	if ok {
		g.used.Add(n)
	}
	return ok
}

func (g *gate) leave(n int64) {
	g.used.Add(-n)
	g.sem.Release(n)
}

func (g *gate) inUse() int64 { return g.used.Load() }
