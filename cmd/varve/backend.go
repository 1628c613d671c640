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

	writable func() error // nil while the store accepts points
	settings []reloadable

	// Of a store that several servers share: by what name this one is known to the
	// others, and what makes its points visible to them.
	node  string
	flush func(context.Context) error
}

// openBackend opens the store that the configuration names.
func openBackend(c config.Config, opening *embedded.Opening, registry *prometheus.Registry, log *slog.Logger) (*backend, error) {
	open := func() (*backend, error) { return openEmbedded(c, opening, registry, log) }
	if c.Store == config.Cassandra {
		open = func() (*backend, error) { return openCassandra(c, registry, log) }
	}
	b, err := open()
	if err == nil {
		showDisk(c.DataDir, b.writable, registry)
	}
	return b, err
}

// showDisk registers metrics that say whether the store accepts points, and how
// much space is left for them.
func showDisk(dir string, writable func() error, registry *prometheus.Registry) {
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_store_writable", Help: "1 if the store takes points, 0 if it refuses them; the log and /admin/rejected say why.",
		}, func() float64 {
			if writable() != nil {
				return 0
			}
			return 1
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_store_disk_free_bytes", Help: "Free space on the file system of data_dir, for this process; -1 if it is not known.",
		}, func() float64 {
			usage, err := vfs.Default.GetDiskUsage(dir)
			if err != nil {
				return -1
			}
			return float64(usage.AvailBytes)
		}),
	)
}

func openEmbedded(c config.Config, opening *embedded.Opening, registry *prometheus.Registry, log *slog.Logger) (*backend, error) {
	s, err := embedded.Open(vfs.Default, c.DataDir, c.Embedded, embedded.Options{
		Registerer: registry, Logger: log, Opening: opening,
		Fatal: func(reason string) {
			log.Error(reason + "; the server ends. All acknowledged points are in the write-ahead log: fix the disk, then start the server again")
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
		Store:    s,
		writable: s.Healthy,
		routes:   append(maintenance(s), elsewhere(onlyCassandra, "Cassandra")...),
		checks: []server.Check{
			{Name: "Datastore-Write", Run: func(context.Context) error { return s.Healthy() }, Quiet: true},
			{Name: "Datastore-Files", Run: func(context.Context) error { return s.Damaged() }, Quiet: true, Partial: true},
		},
		largest: culprits(s.LargestMetrics),
		fastest: culprits(s.FastestMetrics),
	}, nil
}
