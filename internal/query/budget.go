package query

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"varve/internal/store"
)

// A budget bounds the memory of one query, and takes it from the memory of all
// queries in large pieces. It is safe for many goroutines.
type budget struct {
	max  int64
	key  string // the setting that max comes from
	used atomic.Int64

	ctx     context.Context // of the query; its end ends a wait for memory
	session uint64          // its id
	sender  netip.Prefix    // of the query
	engine  *Engine         // nil: only the query's own limit counts
	granted atomic.Int64    // of the pool
	lent    atomic.Bool     // another query has its slot
	mu      sync.Mutex      // held while granted changes
}

// grantBytes is the piece in which memory is taken from the pool, after a first one of smallGrant. A
// query keeps up to keptGrant more than it uses.
const (
	grantBytes = 1 << 20
	keptGrant  = 16 << 20
)

// take reserves n bytes. It fails with a *store.LimitError if one query may not have
// as many, and with a Busy limit if other queries hold all memory.
func (b *budget) take(n int64) error {
	used := b.used.Add(n)
	if used > b.max {
		b.used.Add(-n)
		return &store.LimitError{
			Limit: b.key, Max: b.max, Need: used,
			What: "memory for the samples, buckets and points of a query; narrow the time range or the tags, or sample more coarsely",
		}
	}
	if b.engine == nil || used <= b.granted.Load() {
		return nil
	}
	if err := b.grow(); err != nil {
		b.used.Add(-n)
		return err
	}
	return nil
}

// grow takes from the pool the memory that is used but not granted yet.
func (b *budget) grow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	granted := b.granted.Load()
	lacks := min(b.used.Load(), b.max) - granted
	if lacks <= 0 {
		return nil
	}
	piece := int64(smallGrant)
	if granted+lacks > smallGrant {
		piece = (lacks + grantBytes - 1) / grantBytes * grantBytes
	}
	piece = min(piece, b.max-granted)
	w := want{bytes: piece, held: granted + piece, session: b.session, sender: b.sender}
	e := b.engine
	if _, ok := e.pool.try(w); !ok {
		if err := b.lend(b.ctx, w); err != nil {
			return err
		}
	}
	b.granted.Add(piece)
	return nil
}

func (b *budget) release(n int64) {
	used := b.used.Add(-n)
	if b.engine == nil || b.granted.Load()-used <= keptGrant || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	if spare := b.granted.Load() - b.used.Load() - keptGrant/2; spare > 0 {
		b.granted.Add(-spare)
		b.engine.pool.shrink(b.session, b.sender, spare)
	}
}

// close gives everything back to the pool.
func (b *budget) close() {
	if b.engine != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.engine.pool.end(b.session, b.sender, b.granted.Swap(0))
	}
}

// A Lease is the memory that one owner has taken from the budget of a session. It is safe
// for concurrent use.
type Lease struct {
	budget *budget
	held   atomic.Int64
}

// Lease returns an empty Lease.
func (s *Session) Lease() Lease { return Lease{budget: &s.budget} }

// Reserve takes n bytes that are held until the session is closed.
func (s *Session) Reserve(n int64) error { return s.budget.take(n) }

// Take reserves n bytes until Release. It waits for memory and fails as Reserve does.
func (l *Lease) Take(n int64) error {
	if err := l.budget.take(n); err != nil {
		return err
	}
	l.held.Add(n)
	return nil
}

// Held is the number of bytes that the owner has.
func (l *Lease) Held() int64 { return l.held.Load() }

// Release gives everything back.
func (l *Lease) Release() { l.budget.release(l.held.Swap(0)) }
