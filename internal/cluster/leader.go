package cluster

import (
	"context"
	"sync/atomic"
	"time"
)

// A Leader is one of the processes that would do what only one is to do.
type Leader struct {
	node  *Node
	name  string
	life  time.Duration
	lease atomic.Pointer[Lease] // nil while another process leads
}

// NewLeader returns a process that wants the lease of a name. If the leader is gone without
// a word, another one follows after life and Skew.
func (n *Node) NewLeader(name string, life time.Duration) *Leader {
	return &Leader{node: n, name: name, life: life}
}

// Leads reports whether this process leads now. Ask directly before what only the leader
// does; see Lease.Check.
func (l *Leader) Leads() bool {
	lease := l.lease.Load()
	return lease != nil && lease.Check() == nil
}

// Run gets the lease whenever it can be had, and keeps it, until ctx ends.
func (l *Leader) Run(ctx context.Context) {
	pause := time.NewTicker(l.life / 4)
	defer pause.Stop()
	for {
		if lease, err := l.acquire(ctx); err == nil {
			l.lease.Store(lease)
			_ = lease.Keep(ctx, func(held context.Context) error { // its end is all there is to it
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

// acquire waits for the answer for a moment even if ctx has ended. Otherwise this process could
// hold a lease without knowing it, and nobody could take it until it ends.
func (l *Leader) acquire(ctx context.Context) (*Lease, error) {
	attempt, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, cancel) })
	defer stop()
	return l.node.Acquire(attempt, l.name, l.life)
}
