package remove

import (
	"context"
	"errors"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cluster"
	"varve/internal/store"
)

// A node that works on a delete job holds the job's lease. So no two nodes work on the same
// job, even if clocks differ, or if a node continues after it was stopped for a while. Leases
// are in the keyspace that has the jobs.
//
// jobSilence is needed in addition, for two reasons. Nodes of earlier versions do not use
// leases: it keeps them from jobs that other nodes work on, and other nodes from theirs. And in
// a keyspace where the table of leases is missing and may not be created, there is nothing
// else. Two nodes may work on the same job there, and do everything twice, which does no harm.

// jobLease is how long a node holds the lease of a job after it last renewed it.
const jobLease = 30 * time.Second

// errLost is the error of a job whose lease was lost. This node may no longer write the
// record of the job. The store is not at fault: a client that waits for the job gets 503, as for
// other interruptions after which a job continues.
var errLost error = &store.UnavailableError{Reason: "its lease was lost; this node or another one will continue it in about a minute"}

func (j *jobs) newLeases() *cluster.Leases {
	return cluster.NewLeases(cluster.Options{
		Node: j.node, Log: j.d.log,
		Without: "two servers may work on the same delete job if their clocks differ a lot or one is suspended for a minute; this takes longer but does no harm",
		Open: func() (*cql.Session, bool, error) {
			ks, err := j.d.services()
			if err != nil {
				return nil, false, err
			}
			return ks.Session, ks.MayCreate(), nil
		},
	})
}

// lease acquires the lease of a job. again says that this node worked on the job before a
// restart. lease returns nil without an error if jobs have no leases here, and a
// *cluster.HeldError or cluster.ErrChanged if another node works on the job.
func (j *jobs) lease(ctx context.Context, id string, again bool) (*cluster.Lease, error) {
	ks, err := j.d.services()
	if err != nil || !ks.Tables.ServiceIndex {
		return nil, err // without that table, no other node knows about the jobs
	}
	name := "delete job " + id
	if again {
		return j.leases.Reacquire(ctx, name, j.leaseLife)
	}
	return j.leases.Acquire(ctx, name, j.leaseLife)
}

// underLease runs f while the lease is held; see cluster.Lease.Keep.
func underLease(ctx context.Context, lease *cluster.Lease, f func(context.Context) error) error {
	if lease == nil {
		return f(ctx)
	}
	return lease.Keep(ctx, f)
}

// lostOr returns the error of work under a lease: errLost if the lease was lost, otherwise err.
func lostOr(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), cluster.ErrLost) {
		return errLost
	}
	return err
}
