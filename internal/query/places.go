package query

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// places limits the queries that compute at once. Queries that wait stand in two
// lines: fresh ones in the order in which they came, and those that have begun, the
// oldest first, so that some end before all are half done. A free place goes to the
// two lines by turns. places is safe for many goroutines.
type places struct {
	mu    sync.Mutex
	free  int // below 0 while more are taken than there should be
	taken int
	fresh []*waiter
	begun []*waiter // by id
	last  bool      // the last place went to a query that had begun
}

// A waiter stands in a line until it is called.
type waiter struct {
	id     uint64        // of a query that has begun
	called chan struct{} // closed when it has a place
}

// try takes a place if there is one that nobody waits for.
func (p *places) try() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free <= 0 {
		return false
	}
	p.free--
	p.taken++
	return true
}

// A queue is a line before places: how many may wait in it, and for how long.
type queue struct {
	most    int64 // requests that may wait
	wait    time.Duration
	waiting *atomic.Int64
	gauge   prometheus.Gauge

	full func(n int64) error // the error of one more, of n
	late error               // of who has waited for that long
}

// queue waits for a place in q.
func (p *places) queue(ctx context.Context, q queue) error {
	n := q.waiting.Add(1)
	defer q.waiting.Add(-1)
	if n > q.most {
		return q.full(n)
	}
	q.gauge.Inc()
	defer q.gauge.Dec()
	ctx, cancel := context.WithTimeoutCause(ctx, q.wait, q.late)
	defer cancel()
	return p.line(ctx, 0)
}

// line waits for a place. id is 0 for a query that has not begun.
func (p *places) line(ctx context.Context, id uint64) error {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.taken++
		p.mu.Unlock()
		return nil
	}
	w := p.stand(id)
	p.mu.Unlock()
	return p.wait(ctx, w)
}

// stand puts a waiter into its line. p.mu is held.
func (p *places) stand(id uint64) *waiter {
	w := &waiter{id: id, called: make(chan struct{})}
	if id == 0 {
		p.fresh = append(p.fresh, w)
		return w
	}
	at, _ := slices.BinarySearchFunc(p.begun, id, func(w *waiter, id uint64) int { return cmp.Compare(w.id, id) })
	p.begun = slices.Insert(p.begun, at, w)
	return w
}

// wait waits until w is called. If ctx ends first, w leaves its line.
func (p *places) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.called:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.called: // at the same moment: the place goes to the next waiter
		p.pass()
	default:
		isW := func(x *waiter) bool { return x == w }
		p.fresh, p.begun = slices.DeleteFunc(p.fresh, isW), slices.DeleteFunc(p.begun, isW)
	}
	return context.Cause(ctx)
}

// leave gives a place back.
func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass()
}

// pass gives a taken place to the next waiter, or frees it. p.mu is held.
func (p *places) pass() {
	if p.free < 0 { // there are fewer places than there were
		p.free++
		p.taken--
		return
	}
	line := &p.fresh
	if p.last = len(p.begun) > 0 && (len(p.fresh) == 0 || !p.last); p.last {
		line = &p.begun
	}
	if len(*line) == 0 {
		p.free++
		p.taken--
		return
	}
	w := (*line)[0]
	*line = slices.Delete(*line, 0, 1)
	close(w.called)
}

// grow makes n more places, or fewer if n is negative: these go when they are given
// back.
func (p *places) grow(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += min(n, 0)
	for ; n > 0; n-- {
		p.taken++
		p.pass()
	}
}

// yield gives the place of a query to a fresh one, if one waits, and waits for
// another place, unless that many queries that have begun wait already.
func (p *places) yield(ctx context.Context, id uint64, most int) (had bool, err error) {
	p.mu.Lock()
	if len(p.fresh) == 0 || len(p.begun) >= most {
		p.mu.Unlock()
		return true, nil
	}
	next := p.fresh[0]
	p.fresh = slices.Delete(p.fresh, 0, 1)
	close(next.called)
	w := p.stand(id)
	p.mu.Unlock()
	err = p.wait(ctx, w)
	return err == nil, err
}

// inUse returns the number of taken places.
func (p *places) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
