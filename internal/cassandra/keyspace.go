package cassandra

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
	"varve/internal/work"
)

func (s *Store) openKeyspace(ctx context.Context, c *cluster, o Options) (layout.Keyspace, error) {
	if err := c.session.Wait(ctx); err != nil {
		return nil, err
	}
	if c == s.written {
		if err := s.aim(ctx); err != nil {
			return nil, err
		}
	}
	options := layout.Options{
		Role: c.role, Node: o.Node, Registerer: labelled(o.Registerer, c.name), Logger: o.Logger,
		ClockSet: s.clock.wait,
		Progress: func(text string) { c.unreached(errors.New(text)) },
	}
	switch c {
	case s.written:
		options.Replication = o.replication
	case s.meta:
		options.Replication = s.cfg.MetaCluster.Replication
	}
	if c != s.written {
		options.Cluster = c.name // jobs of the written cluster have no name, as without further clusters
	}
	if c != s.written || s.meta != nil {
		options.Services = s.metadata
	}
	ks, err := c.tables.Open(ctx, c.session, options)
	if err != nil {
		return nil, err
	}
	d := ks.Description()
	log := o.Logger.With("cluster", c.name, "keyspace", d.Name, "layout", c.layout)
	if d.Rows != nil {
		log = log.With("row_time_unit", d.Rows.TimeUnit, "row_width", d.Rows.Width)
	}
	log.Info("the keyspace is open")
	for _, note := range d.Notes {
		o.Logger.Warn("the keyspace's schema: "+note, "cluster", c.name)
	}
	return ks, nil
}

// resumeEvery is how often to look for delete jobs that no node works on.
const resumeEvery = time.Minute

// resume continues unfinished delete jobs, until ctx ends.
func resume(ctx context.Context, d layout.Deleter, log *slog.Logger) {
	for {
		if err := d.Resume(ctx); err != nil && ctx.Err() == nil {
			log.Warn("cannot look for delete jobs", "error", err)
		}
		if work.Pause(ctx, resumeEvery) != nil {
			return
		}
	}
}

// Session returns the session of the written keyspace, for data other than samples. It ends
// when the store is closed.
func (s *Store) Session() *cql.Session { return s.written.session }
