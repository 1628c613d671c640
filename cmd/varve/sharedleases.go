package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"varve/internal/cassandra"
	"varve/internal/cassandra/cql"
	"varve/internal/cluster"
	"varve/internal/config"
	"varve/internal/rollup"
)

// sharedLeases returns the leases of roll-ups among the servers of the keyspace that is written
// to.
func sharedLeases(c config.Config, s *cassandra.Keyspaces, node string, log *slog.Logger) func(context.Context, string, time.Duration) (rollup.Lease, error) {
	leases := cluster.NewLeases(cluster.Options{
		Node: node, Log: log,
		Open:    func() (*cql.Session, bool, error) { return s.Session(), createsTables(c), s.CheckCluster() },
		Without: "request backfills of a roll-up only from the server that runs it",
	})
	return func(ctx context.Context, name string, life time.Duration) (rollup.Lease, error) {
		lease, err := leases.Acquire(ctx, name, life)
		_, held := errors.AsType[*cluster.HeldError](err)
		if held || errors.Is(err, cluster.ErrChanged) || errors.Is(err, cluster.ErrLost) { // ErrLost: granted, but too late
			return nil, fmt.Errorf("%w: %w", rollup.ErrHeld, err)
		}
		if err != nil || lease == nil {
			return nil, err // not a nil *cluster.Lease, which is not a nil rollup.Lease
		}
		return lease, nil
	}
}
