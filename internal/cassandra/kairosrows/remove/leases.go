package remove

import (
	"context"
	"errors"
	"os"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cluster"
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
// record of the job.
var errLost = errors.New("its lease was lost; this node or another one will continue it in about a minute")

// lease acquires the lease of a job. again says that this node worked on the job before a
// restart. lease returns nil without an error if jobs have no leases here, and a
// *cluster.HeldError or cluster.ErrChanged if another node works on the job.
func (j *jobs) lease(ctx context.Context, id string, again bool) (*cluster.Lease, error) {
	node, err := j.member(ctx)
	if err != nil || node == nil {
		return nil, err
	}
	get := node.Acquire
	if again {
		get = node.Reacquire
	}
	lease, err := get(ctx, "delete job "+id, j.leaseLife)
	if _, ok := errors.AsType[*cql.RefusedError](err); ok {
		j.noLeases(err)
		return nil, nil
	}
	return lease, err
}

// noLeases logs why there are no leases.
func (j *jobs) noLeases(why error) {
	j.unleased.Do(func() {
		j.d.log.Warn("delete jobs have no leases: two servers may work on the same job if their clocks differ a lot or one is suspended for a minute; this takes longer but does no harm", "error", why)
	})
}

// member returns this process as a node that can hold leases, nil if leases are not possible.
func (j *jobs) member(ctx context.Context) (*cluster.Node, error) {
	if node := j.leases.Load(); node != nil {
		return node, nil
	}
	ks, err := j.d.services()
	if err != nil || !ks.Tables.ServiceIndex {
		return nil, err // without that table, no other node knows about the jobs
	}
	registers, err := cluster.OpenRegisters(ctx, ks.Session, ks.MayCreate())
	if _, ok := errors.AsType[*cql.TableError](err); ok {
		j.noLeases(err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // for people
	j.leases.CompareAndSwap(nil, cluster.NewNode(registers, j.node, host))
	return j.leases.Load(), nil
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
