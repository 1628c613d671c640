package query

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/store"
)

// A pool is the memory of all queries and unsent answers together. A query that
// finds the pool exhausted waits until others release memory. A pool is safe for
// concurrent use.
type pool struct {
	max     int64
	maxWait atomic.Int64 // a time.Duration
	metrics *metrics

	mu    sync.Mutex
	used  int64
	freed chan struct{} // closed when memory is given back, nil while nobody waits
}

// acquire takes n bytes, or fails with a *BusyError after maxWait, so that
// queries do not wait for each other forever.
func (p *pool) acquire(ctx context.Context, n int64) error {
	freed, ok := p.try(n)
	if ok {
		return nil
	}
	p.metrics.memoryWaits.Inc()
	defer p.metrics.memoryWaits.Dec()
	maxWait := time.Duration(p.maxWait.Load())
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	for !ok {
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			p.metrics.memoryRefused.Inc()
			return &BusyError{&store.LimitError{
				Limit: "query.total_memory", Max: p.max, Need: p.inUse() + n,
				What: "memory of all queries and unsent answers together; none became free within query.max_wait of " + maxWait.String(),
			}}
		}
		freed, ok = p.try(n)
	}
	return nil
}

// try takes n bytes, or returns a channel that is closed when memory is given back.
func (p *pool) try(n int64) (freed chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+n <= p.max {
		p.used += n
		p.metrics.memory.Set(float64(p.used))
		return nil, true
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return p.freed, false
}

func (p *pool) release(n int64) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	p.metrics.memory.Set(float64(p.used))
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

func (p *pool) inUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Reserve takes n bytes of query.total_memory for an answer that is not sent yet. It
// waits and fails as queries do, with a *BusyError. Return gives the memory back.
func (e *Engine) Reserve(ctx context.Context, n int64) error { return e.pool.acquire(ctx, n) }

// ReserveAnswer is [Engine.Reserve] for the answer of a query that computes. Queries of other
// tenants compute while it waits.
func (s *Session) ReserveAnswer(n int64) error {
	pool := s.engine.pool
	if _, ok := pool.try(n); ok {
		return nil
	}
	return s.Wait(func() error { return pool.acquire(s.ctx, n) })
}

// Return gives back what Reserve took.
func (e *Engine) Return(n int64) { e.pool.release(n) }
