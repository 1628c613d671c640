package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/server"
	"varve/internal/store"
)

// A backend is a store, and what the server shows of one of its kind beside
// what the contract says.
type backend struct {
	store.Store
	routes           []httpapi.Route
	checks           []server.Check
	largest, fastest func(limit int) []ingest.Culprit

	settings []reloadable
}

// openBackend opens the store that the configuration names.
func openBackend(c config.Config, opening *embedded.Opening, registry *prometheus.Registry, log *slog.Logger) (*backend, error) {
	if c.Store == config.Cassandra {
		return openCassandra(c, registry, log)
	}
	return openEmbedded(c, opening, registry, log)
}

func openEmbedded(c config.Config, opening *embedded.Opening, registry *prometheus.Registry, log *slog.Logger) (*backend, error) {
	s, err := embedded.Open(vfs.Default, c.DataDir, c.Embedded, embedded.Options{
		Registerer: registry, Logger: log, Opening: opening,
		Fatal: func(reason string) {
			log.Error(reason + "; the server ends, and what it has acknowledged is in the log: when the disk is well, start it again")
			os.Exit(1)
		},
	})
	if locked := (*embedded.LockedError)(nil); errors.As(err, &locked) {
		return nil, fmt.Errorf("%w (--data-dir)", err)
	}
	if damage := (*store.CorruptionError)(nil); errors.As(err, &damage) {
		return nil, fmt.Errorf("%w\nvarve check --data-dir %s says what that costs, varve repair puts it aside and keeps the rest", err, c.DataDir)
	}
	if err != nil {
		return nil, err
	}
	return &backend{
		Store:  s,
		routes: maintenance(s),
		checks: []server.Check{
			{Name: "Datastore-Write", Run: func(context.Context) error { return s.Healthy() }, Quiet: true},
			{Name: "Datastore-Files", Run: func(context.Context) error { return s.Damaged() }, Quiet: true, Partial: true},
		},
		largest: culprits(s.LargestMetrics),
		fastest: culprits(s.FastestMetrics),
	}, nil
}
