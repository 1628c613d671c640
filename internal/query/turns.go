package query

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Turns let the queries of all tenants of a server share its processors. Each tenant has
// slots of its own, so a query waits for no other tenant to begin. But the slots of all
// tenants together are more than the processors. While more goroutines compute than may, a
// query that has had its first turn waits for the next one in a line that all tenants have
// in common. So short queries of one tenant do not wait behind long ones of another. A nil
// *Turns bounds nothing. Turns are safe for concurrent use.
type Turns struct {
	most      int64
	computing atomic.Int64
	waiting   atomic.Int64

	mu   sync.Mutex
	line []chan struct{} // each is closed when its query has its turn
}

// pauseMost is the longest time that a query waits for its next turn: a query that holds a
// slot may itself be waiting for something other than a processor, and must not block the
// others.
const pauseMost = 100 * time.Millisecond

// NewTurns returns turns of this many goroutines at once.
func NewTurns(most int) *Turns { return &Turns{most: int64(most)} }

// add adds n goroutines to those that compute, or removes them if n is negative.
func (t *Turns) add(n int) {
	if t == nil {
		return
	}
	if t.computing.Add(int64(n)) < t.most && t.waiting.Load() > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.callLocked()
	}
}

// callLocked calls the first in line if a processor is free. It counts as computing at
// once. t.mu must be held.
func (t *Turns) callLocked() {
	for len(t.line) > 0 && t.computing.Load() < t.most {
		t.computing.Add(1)
		close(t.line[0])
		t.line = t.line[1:]
	}
}

// without runs f, which waits for something other than a processor, such as memory.
// Meanwhile its goroutine does not count as computing; otherwise others would pause for it
// needlessly.
func (t *Turns) without(f func() error) error {
	t.add(-1)
	defer t.add(1)
	return f()
}

// left returns how many more goroutines may compute.
func (t *Turns) left() int {
	if t == nil {
		return math.MaxInt
	}
	return int(t.most - t.computing.Load())
}

// due reports whether a query whose turn is over must let others compute.
func (t *Turns) due() bool {
	if t == nil {
		return false
	}
	n := t.computing.Load()
	return n > t.most || n == t.most && t.waiting.Load() > 0
}

// pause gives the processor of a query to others, and waits for the next turn.
func (t *Turns) pause(ctx context.Context) error {
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	called := make(chan struct{})
	t.mu.Lock()
	t.line = append(t.line, called) // at most as long as there are slots
	t.computing.Add(-1)
	t.callLocked()
	t.mu.Unlock()
	timer := time.NewTimer(pauseMost)
	defer timer.Stop()
	select {
	case <-called:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	t.leave(called)
	return context.Cause(ctx)
}

// leave removes a waiting query from the line, and counts it as computing.
func (t *Turns) leave(called chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.line, called); i >= 0 {
		t.line = slices.Delete(t.line, i, i+1)
		t.computing.Add(1)
	}
}
