package cql

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// limiter bounds what is in flight, by number and by bytes, and learns how many
// statements the cluster bears: a timeout halves the number, at most once in
// each pause, and each full round without one adds one. Waiters are served in
// their order.
type limiter struct {
	pause time.Duration // between two halvings
	now   func() time.Time

	mu       sync.Mutex
	max      int     // most statements, from the configuration and the nodes
	maxBytes int     // most bytes
	limit    float64 // now, floor to max
	pressed  int     // statements whose success raises the limit: the round in which it was reached
	inFlight int
	bytes    int
	waiters  list.List // of *waiter
	halved   time.Time // when last

	waits    uint64
	waited   time.Duration
	halvings uint64
}

type waiter struct {
	bytes int
	ready chan struct{}
}

// floor keeps some parallelism: below it, one slow statement stops all.
const floor = 4

func newLimiter(now func() time.Time) *limiter {
	return &limiter{pause: time.Second, now: now, max: 1, maxBytes: 1, limit: 1}
}

// resize sets the bounds. A limit at the old bound moves to the new one.
func (l *limiter) resize(statements, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit >= float64(l.max) || l.limit > float64(statements) {
		l.limit = float64(statements)
	}
	l.max, l.maxBytes = statements, bytes
	l.grantLocked()
}

// acquire waits for room for one statement of n bytes. One larger than the
// bound gets room when it is alone.
func (l *limiter) acquire(ctx context.Context, n int) error {
	l.mu.Lock()
	if l.waiters.Len() == 0 && l.roomLocked(n) {
		l.enterLocked(n)
		l.mu.Unlock()
		return nil
	}
	w := &waiter{bytes: n, ready: make(chan struct{})}
	at := l.waiters.PushBack(w)
	l.waits++
	l.mu.Unlock()
	start := l.now()
	var err error
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waited += l.now().Sub(start)
	if err == nil {
		return nil
	}
	select {
	case <-w.ready: // granted at the same moment: give it back
		l.inFlight--
		l.bytes -= n
	default:
		l.waiters.Remove(at)
	}
	l.grantLocked()
	return err
}

// release gives the room back and learns from the outcome.
func (l *limiter) release(n int, c class) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.bytes -= n
	switch {
	case c.congested():
		if now := l.now(); now.Sub(l.halved) >= l.pause {
			l.halved = now
			l.halvings++
			l.limit = max(min(floor, float64(l.max)), l.limit/2)
			l.pressed = 0
		}
	case c == classOK && l.pressed > 0:
		l.pressed--
		l.limit = min(float64(l.max), l.limit+1/l.limit)
	}
	l.grantLocked()
}

func (l *limiter) roomLocked(n int) bool {
	return l.inFlight == 0 || l.inFlight < int(l.limit) && l.bytes+n <= l.maxBytes
}

func (l *limiter) enterLocked(n int) {
	l.inFlight++
	l.bytes += n
	if l.inFlight >= int(l.limit) {
		l.pressed = int(l.limit)
	}
}

func (l *limiter) grantLocked() {
	for e := l.waiters.Front(); e != nil; e = l.waiters.Front() {
		w := e.Value.(*waiter)
		if !l.roomLocked(w.bytes) {
			return
		}
		l.waiters.Remove(e)
		l.enterLocked(w.bytes)
		close(w.ready)
	}
}

// load is a look at a limiter, for metrics.
type load struct {
	limit, inFlight, bytes, waiting int
	waits, halvings                 uint64
	waited                          time.Duration
}

func (l *limiter) load() load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return load{int(l.limit), l.inFlight, l.bytes, l.waiters.Len(), l.waits, l.halvings, l.waited}
}
