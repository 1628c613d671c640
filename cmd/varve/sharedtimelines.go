package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra"
	"varve/internal/cassandra/events"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/config"
	"varve/internal/graphite/event"
	"varve/internal/timeline"
)

// openSharedTimelines opens the timelines in the keyspace that is written to. It does not
// wait for the cluster. close ends them; call it before the store is closed.
func openSharedTimelines(c config.Config, s *cassandra.Store, node string, registry prometheus.Registerer, log *slog.Logger) (engine *timeline.Engine, close func() error, err error) {
	host, _ := os.Hostname() // for people
	create := c.Cassandra.Schema.Create != schema.CreateNothing && c.Cassandra.Schema.Role == schema.RoleAll
	shelf := events.Open(s.Session(), events.Options{Node: node, Host: host, Create: create, Log: log})
	engine, err = timeline.Open(shelf, timeline.Options{Config: c.Timeline, Log: log, Metric: registry, Lease: shelf.Leads, Own: event.Own()})
	if err != nil {
		return nil, nil, errors.Join(err, shelf.Close())
	}
	return engine, func() error { return errors.Join(engine.Close(), shelf.Close()) }, nil
}
