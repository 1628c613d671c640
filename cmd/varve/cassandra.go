package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra"
	"varve/internal/config"
	"varve/internal/server"
)

// openCassandra opens the store in a cluster. It does not wait for the cluster:
// samples are taken meanwhile.
func openCassandra(c config.Config, registry *prometheus.Registry, log *slog.Logger) (*backend, error) {
	node := serverNode(c.DataDir, log)
	s, err := cassandra.Open(vfs.Default, filepath.Join(c.DataDir, "spool"), c.Cassandra, cassandra.Options{
		Registerer: registry, Logger: log, Node: node,
	})
	if err != nil {
		return nil, err
	}
	checks := []server.Check{
		{Name: "Datastore-Write", Run: func(context.Context) error { return s.Healthy() }, Quiet: true},
		{Name: "Datastore-Cassandra", Run: func(context.Context) error { return s.Degraded() }, Quiet: true, Partial: true},
	}
	for _, c := range s.Others() {
		checks = append(checks, server.Check{Name: "Datastore-Cassandra-" + c.Name, Run: c.Healthy, Quiet: true, Partial: true})
	}
	return &backend{
		Store:    s,
		node:     node,
		flush:    s.Flush,
		routes:   cassandraAdmin(s),
		settings: []reloadable{{"cassandra.write.tag_index", func(c config.Config) error { return s.SetTagIndex(c.Cassandra.Write.TagIndex) }}},
		checks:   checks,
		writable: s.Healthy,
	}, nil
}
