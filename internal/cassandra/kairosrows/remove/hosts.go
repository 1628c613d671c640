package remove

import (
	"context"
	"fmt"
	"math"
	"time"

	"varve/internal/cassandra/kairosrows/schema"
)

const (
	// hostsEvery is how often the list of KairosDB nodes is read.
	hostsEvery = 10 * time.Second
)

// keepFrom returns the row time from which index rows must be kept, math.MaxInt64 if there is
// none.
func (d *Deleter) keepFrom(ctx context.Context) (int64, error) {
	run, err := d.KairosDBRuns(ctx)
	if err != nil || !run {
		return math.MaxInt64, err
	}
	return d.now().Add(-d.cfg.Horizon).UnixMilli() - d.ks.Spec.Width, nil
}

// KairosDBRuns reports whether a KairosDB node uses the keyspace.
func (d *Deleter) KairosDBRuns(ctx context.Context) (bool, error) {
	if d.cfg.KairosDBNodes != NodesAuto {
		return d.cfg.KairosDBNodes == NodesYes, nil
	}
	services, err := d.services()
	if err != nil {
		return false, fmt.Errorf("find out whether KairosDB nodes run: %w", err)
	}
	now := d.now()
	d.mu.Lock()
	if run := d.nodes; now.Sub(d.nodesAt) < hostsEvery && !now.Before(d.nodesAt) {
		d.mu.Unlock()
		return run, nil
	}
	d.mu.Unlock()
	places := []*schema.Keyspace{services}
	if d.ks != services {
		places = append(places, d.ks)
	}
	run, known := false, false
	for _, ks := range places {
		if run || !ks.Tables.ServiceIndex {
			continue
		}
		known = true
		if run, err = ks.KairosDBNodes(ctx, now); err != nil {
			return false, fmt.Errorf("find out whether KairosDB nodes run: %w", err)
		}
	}
	run = run || !known // the list of nodes may be in another keyspace
	d.mu.Lock()
	d.nodes, d.nodesAt = run, now
	d.mu.Unlock()
	return run, nil
}
