package cluster

import (
	"context"
	"sync/atomic"
	"time"

	"varve/internal/work"
)

// A Leader is a candidate for work that only one process should do at a time.
type Leader struct {
	node  *Node
	name  string
	life  time.Duration
	lease atomic.Pointer[Lease] // nil while another process leads
}

// NewLeader returns a candidate for the lease of a name. If the leader dies, another candidate
// takes over after life plus Skew.
func (n *Node) NewLeader(name string, life time.Duration) *Leader {
	return &Leader{node: n, name: name, life: life}
}

// Leads reports whether this process leads now. Call it immediately before each action that
// only the leader may take; see Lease.Check.
func (l *Leader) Leads() bool {
	lease := l.lease.Load()
	return lease != nil && lease.Check() == nil
}

// Run acquires the lease whenever it is free, and keeps it, until ctx ends.
func (l *Leader) Run(ctx context.Context) {
	pause := time.NewTicker(l.life / 4)
	defer pause.Stop()
	for {
		if lease, err := l.acquire(ctx); err == nil {
			l.lease.Store(lease)
			_ = lease.Keep(ctx, func(held context.Context) error { // whatever the error, this process no longer leads
				<-held.Done()
				return nil
			})
			l.lease.Store(nil)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// acquire waits briefly for the answer even if ctx has ended. Otherwise this process could hold
// a lease without knowing it, and no other process could acquire the lease until it ends.
func (l *Leader) acquire(ctx context.Context) (*Lease, error) {
	attempt, stop := work.Linger(ctx, releaseTimeout)
	defer stop()
	return l.node.Acquire(attempt, l.name, l.life)
}
