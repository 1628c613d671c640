package main

import (
	"context"
	"log/slog"
	"os"
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
	s, err := cassandra.Open(vfs.Default, filepath.Join(c.DataDir, "spool"), c.Cassandra, cassandra.Options{
		Registerer: registry, Logger: log, Node: nodeName(c.DataDir),
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
		routes:   cassandraAdmin(s),
		settings: []reloadable{{"cassandra.write.tag_index", func(c config.Config) error { return s.SetTagIndex(c.Cassandra.Write.TagIndex) }}},
		checks:   checks,
		writable: s.Healthy,
	}, nil
}

// nodeName names a server by its machine and its data directory, of which no
// two servers can have the same.
func nodeName(dataDir string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	if full, err := filepath.Abs(dataDir); err == nil {
		dataDir = full
	}
	return host + ":" + dataDir
}
