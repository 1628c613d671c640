package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra"
	"varve/internal/config"
	"varve/internal/httpapi"
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
	return &backend{
		Store:  s,
		routes: []httpapi.Route{
			{Method: http.MethodGet, Path: "/admin/cassandra", Handler: cassandraStatus(s)},
			{Method: http.MethodPost, Path: "/admin/flush", Handler: flush(s)},
		},
		checks: []server.Check{
			{Name: "Datastore-Write", Run: func(context.Context) error { return s.Healthy() }, Quiet: true},
			{Name: "Datastore-Cassandra", Run: func(context.Context) error { return s.Degraded() }, Quiet: true, Partial: true},
		},
	}, nil
}

// cassandraStatus says how cluster, keyspace and spool are.
func cassandraStatus(s *cassandra.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Status(), nil) })
}

// flush answers when everything that was sent before is in Cassandra.
func flush(s *cassandra.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Flush(r.Context()); err != nil {
			httpapi.WriteErrors(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		httpapi.SetHeaders(w.Header())
		w.WriteHeader(http.StatusNoContent)
	})
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
