package rollup

import (
	"context"
	"errors"
	"time"

	"varve/internal/work"
)

// A Lease is what only one node has at a time. Its holder alone computes results of a task.
type Lease interface {
	// Keep runs f, renews the lease meanwhile, and releases it at the end. If the lease is lost,
	// the context of f ends. Keep returns the error of f, and why the lease was not released.
	Keep(ctx context.Context, f func(context.Context) error) error

	// Check returns nil while the lease is held. It does no I/O.
	Check() error
}

// ErrHeld means that another node has a lease.
var ErrHeld = errors.New("another server has the lease")

// The assignment of a task does not exclude backfills: any node that is asked for one computes it.
// If a run and a backfill computed one bucket at once, the one that has read less could store its
// result last, and delete the other one's. Two that delete each other's results would leave none.
// So a run, and each batch of a backfill, is under the lease of its task.
const (
	leaseLife  = 20 * time.Second
	leaseRetry = 500 * time.Millisecond // how often a node that waits for a lease asks for it

	// leaseAway is for how long the store of leases must have failed before a run goes without a
	// lease: by then each other node has lost the lease that it had. Otherwise an outage of a data
	// center, without which leases have no quorum, would stop all roll-ups. Backfills wait for the
	// operator, and never go without. An attempt counts for at most leaseAttempt: one that took
	// longer says that this node was suspended, or that its clock was set, more than that the store
	// failed.
	leaseAttempt = 10 * time.Second
	leaseAway    = leaseLife + leaseAttempt

	// After leaseTurn of work, a backfill of a task that another node runs pauses for longer than
	// leaseRetry, so that a run that waits gets its turn.
	leaseTurn  = 10 * time.Second
	leasePause = 1500 * time.Millisecond
)

// underLease runs f under the lease of a task. held reports whether this node still has the lease;
// it does no I/O. With without, f runs without a lease if leases are unavailable for leaseAway.
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
	var away time.Duration // since the store of leases last answered
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
