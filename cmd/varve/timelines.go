package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/config"
	"varve/internal/diskfs"
	"varve/internal/embedded"
	"varve/internal/embedded/datadir"
	"varve/internal/graphite/event"
	"varve/internal/server"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/timeline/local"
)

const withoutEvents = "restore the directory %s from the last backup; to start without its events, put an empty directory in its place"

// openTimelines opens the timelines beside the embedded store, whose lock protects them
// too. close ends them.
func openTimelines(c config.Config, s *embedded.Store, registry prometheus.Registerer, log *slog.Logger) (engine *timeline.Engine, check server.Check, close func() error, err error) {
	gone, err := s.TimelinesGone()
	if err != nil {
		return nil, check, nil, fmt.Errorf("open timelines: %w", err)
	}
	if gone {
		return nil, check, nil, fmt.Errorf("the directory %s is missing in %s: "+withoutEvents, datadir.Timelines, c.DataDir, datadir.Timelines)
	}
	shelf, err := local.Open(diskfs.Data, filepath.Join(c.DataDir, datadir.Timelines), local.Options{
		MinFreeBytes: c.Embedded.MinFreeBytes,
		Logger:       log, Registerer: registry,
		Fatal: func(reason string) {
			log.Error(reason + "; the server exits. All acknowledged events are on disk: fix the disk, then restart the server")
			os.Exit(1)
		},
	})
	if _, ok := errors.AsType[*store.CorruptionError](err); ok {
		return nil, check, nil, fmt.Errorf("%w\n"+withoutEvents, err, datadir.Timelines)
	}
	if err != nil {
		return nil, check, nil, err
	}
	if err := s.SaveTimelines(); err != nil {
		return nil, check, nil, errors.Join(err, shelf.Close())
	}
	engine, err = timeline.Open(shelf, timeline.Options{Config: c.Timeline, Log: log, Metric: registry, Own: event.Own()})
	if err != nil {
		return nil, check, nil, errors.Join(err, shelf.Close())
	}
	s.AlsoBackUp(datadir.Timelines, shelf.CopyTo)
	check = server.Check{Name: "Datastore-Timelines", Run: func(context.Context) error { return shelf.Healthy() }, Quiet: true, Partial: true}
	return engine, check, func() error { return errors.Join(engine.Close(), shelf.Close()) }, nil
}
