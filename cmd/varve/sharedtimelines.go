package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra"
	"varve/internal/cassandra/events"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/config"
	"varve/internal/diskfs"
	"varve/internal/graphite/event"
	"varve/internal/timeline"
	"varve/internal/timeline/spooled"
)

// spoolDir is where events wait for Cassandra.
const spoolDir = "timeline-spool"

// openSharedTimelines opens the timelines in the keyspace that is written to. It does not
// wait for the cluster. waiting is nil if no timeline is spooled. close ends them; call it
// before the store is closed.
func openSharedTimelines(c config.Config, s *cassandra.Keyspaces, node string, registry prometheus.Registerer, log *slog.Logger) (engine *timeline.Engine, waiting *spooled.Spool, close func() error, err error) {
	host, _ := os.Hostname() // for people
	shelf := events.Open(s.Session(), events.Options{Node: node, Host: host, Create: createsTables(c), Usable: s.CheckCluster, Log: log})
	engine, err = timeline.Open(shelf, timeline.Options{Config: c.Timeline, Log: log, Metric: registry, Lease: shelf.Leads, Changeable: s.CheckClock, Own: event.Own()})
	if err != nil {
		return nil, nil, nil, errors.Join(err, shelf.Close())
	}
	closeBoth := func() error { return errors.Join(engine.Close(), shelf.Close()) }
	if !spools(c) {
		return engine, nil, closeBoth, nil
	}
	waiting, err = spooled.Open(diskfs.Data, filepath.Join(c.DataDir, spoolDir), spooled.Options{
		Engine: engine, Confirm: s.ConfirmCluster, Names: c.Timeline.Spool, Keyspace: c.Cassandra.Keyspace, BytesMax: c.Timeline.SpoolBytesMax,
		MinFreeBytes: c.Cassandra.Spool.MinFreeBytes, MinFreeKey: "cassandra.spool.min_free_bytes",
		Logger: log, Registerer: registry,
	})
	if err != nil {
		return nil, nil, nil, errors.Join(err, closeBoth())
	}
	return engine, waiting, func() error { return errors.Join(waiting.Close(), closeBoth()) }, nil
}

// createsTables reports whether the server creates tables that are missing.
func createsTables(c config.Config) bool {
	return c.Cassandra.Schema.Create != schema.CreateNothing && c.Cassandra.Schema.Role == schema.RoleAll
}

// spools reports whether events of some timelines are acknowledged before they are in
// Cassandra, or were acknowledged so before the settings changed.
func spools(c config.Config) bool {
	if len(c.Timeline.Spool) > 0 {
		return true
	}
	_, err := os.Stat(filepath.Join(c.DataDir, spoolDir))
	return err == nil
}
