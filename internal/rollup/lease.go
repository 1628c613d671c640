package rollup

import (
	"context"
	"errors"
	"time"

	"varve/internal/work"
)

// A Lease can be held by one node at a time. Only the node that holds the lease of a task
// computes results of the task.
type Lease interface {
	// Keep runs f, renews the lease meanwhile, and releases it at the end. If the lease is lost,
	// the context of f ends. Keep returns the error of f, and why the lease was not released.
	Keep(ctx context.Context, f func(context.Context) error) error

	// Check returns nil while the lease is held. It does no I/O.
	Check() error
}

// ErrHeld means that another node holds the lease.
var ErrHeld = errors.New("another server has the lease")

// The assignment of a task does not exclude backfills: any node that is asked for one computes it.
// Suppose that a run and a backfill computed one bucket at once. The one that has read fewer
// points could store its result last, and delete the result of the other. If each deleted the
// other's result, the bucket would have none. So a run, and each batch of a backfill, is under
// the lease of its task.
const (
	leaseLife  = 20 * time.Second
	leaseRetry = 500 * time.Millisecond // how often a node that waits for a lease asks for it

	// leaseAway is how long the store of leases must have failed before a run proceeds without a
	// lease: by then every other node has lost its lease. Without this exception, the outage of a
	// data center that leaves leases without a quorum would stop all roll-ups. Backfills never
	// proceed without a lease: the operator can request them again later. An attempt counts for at
	// most leaseAttempt: if it took longer, this node was probably suspended or its clock was set.
	leaseAttempt = 10 * time.Second
	leaseAway    = leaseLife + leaseAttempt

	// After leaseTurn of work, a backfill of a task that another node runs pauses for longer than
	// leaseRetry, so that a run that waits gets its turn.
	leaseTurn  = 10 * time.Second
	leasePause = 1500 * time.Millisecond
)

// underLease runs f under the lease of a task. held reports whether this node still has the lease;
// it does no I/O. If without is set, f runs without a lease once leases have been unavailable for
// leaseAway.
func (s *Scheduler) underLease(ctx context.Context, id string, without bool, f func(ctx context.Context, held func() bool) error) error {
	l, err := s.awaitLease(ctx, id, without)
	if err != nil {
		return err
	}
	if l == nil {
		return f(ctx, func() bool { return true })
	}
	var of error
	kept := l.Keep(ctx, func(ctx context.Context) error {
		of = f(ctx, func() bool { return l.Check() == nil })
		return of
	})
	if of == nil && kept != nil {
		s.log.Info("the lease of a roll-up task could not be released; it will expire", "id", id, "error", kept)
	}
	return of
}

// awaitLease waits until it has the lease of a task. It returns nil if nodes have no leases.
func (s *Scheduler) awaitLease(ctx context.Context, id string, without bool) (Lease, error) {
	if s.lease == nil {
		return nil, nil
	}
	var away time.Duration // how long the store of leases has failed to answer
	last := s.now()
	for {
		l, err := s.lease(ctx, "roll-up "+id, leaseLife)
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		now := s.now()
		away += min(work.Elapsed(last, now), leaseAttempt)
		last = now
		switch {
		case errors.Is(err, ErrHeld):
			away = 0
		case !without:
			return nil, err
		case away >= leaseAway:
			s.log.Warn("roll-up task runs without a lease, because leases are unavailable; do not request a backfill of it on another server", "id", id, "error", err)
			return nil, nil
		}
		if err := work.Pause(ctx, leaseRetry); err != nil {
			return nil, err
		}
	}
}
