package cql

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// limiter bounds the statements in flight, by number and by bytes. Waiters are served in order
// of arrival. The limit of the number is the sum of the limits of the nodes, see pace.
type limiter struct {
	now func() time.Time

	mu       sync.Mutex
	max      int // maximum statements
	maxBytes int // maximum bytes
	inFlight int
	bytes    int
	waiters  list.List // of *waiter

	waits  uint64
	waited time.Duration
}

type waiter struct {
	bytes int
	ready chan struct{}
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, max: 1, maxBytes: 1}
}

// resize sets the bounds.
func (l *limiter) resize(statements, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max, l.maxBytes = statements, bytes
	l.grantLocked()
}

// acquire waits until a statement of n bytes may be in flight. A statement larger than the
// bound may be in flight alone.
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

// tryAcquire is acquire without waiting: it fails if the limits do not permit it or others
// wait.
func (l *limiter) tryAcquire(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiters.Len() > 0 || !l.roomLocked(n) {
		return false
	}
	l.enterLocked(n)
	return true
}

// release undoes acquire.
func (l *limiter) release(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.bytes -= n
	l.grantLocked()
}

func (l *limiter) roomLocked(n int) bool {
	return l.inFlight == 0 || l.inFlight < l.max && l.bytes+n <= l.maxBytes
}

func (l *limiter) enterLocked(n int) {
	l.inFlight++
	l.bytes += n
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

// load is the state of a limiter, for metrics.
type load struct {
	limit, inFlight, bytes, waiting int
	waits                           uint64
	waited                          time.Duration
}

func (l *limiter) load() load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return load{l.max, l.inFlight, l.bytes, l.waiters.Len(), l.waits, l.waited}
}
