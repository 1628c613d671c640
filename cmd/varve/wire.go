package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/admin"
	"varve/internal/authz"
	"varve/internal/cassandra"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/layout"
	"varve/internal/cluster"
	"varve/internal/config"
	"varve/internal/diskfs"
	"varve/internal/embedded"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/graphite"
	"varve/internal/growth"
	"varve/internal/httpapi"
	"varve/internal/ingest/carbon"
	"varve/internal/ingest/kairosjson"
	"varve/internal/ingest/opentsdb"
	"varve/internal/ingest/telnet"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/rollup"
	"varve/internal/server"
	"varve/internal/store"
	"varve/internal/stream"
	"varve/internal/timeline"
	timelines "varve/internal/timeline/api"
	"varve/internal/timeline/spooled"
	"varve/internal/transfer"
	"varve/internal/wal"
)

// A backend is a store, with what the server offers for its kind of store in
// addition to the contract.
type backend struct {
	store.Store
	routes           func(queries *query.Engine) []httpapi.Route
	checks           []server.Check
	largest, fastest func(limit int) []growth.Metric

	timelines *timeline.Engine
	spool     timelines.Spool // of events; nil without
	alsoClose func() error    // closes data beside the store

	writable func() error // nil while the store accepts points
	settings []admin.Reloadable

	unlock func() error // releases the data directory, nil if the store does that

	// These are for a store that several servers share: the name of this server
	// among them, a function that makes its points visible to the others, and
	// leases that exclude the others.
	node  string
	flush func(ctx context.Context, metrics ...string) error
	lease func(ctx context.Context, name string, life time.Duration) (rollup.Lease, error)
}

// Unwrap lets [store.As] find the optional interfaces of the store.
func (b *backend) Unwrap() any { return b.Store }

// Close closes the store and the data beside it.
func (b *backend) Close() error {
	var err error
	if b.alsoClose != nil {
		err = b.alsoClose()
	}
	err = errors.Join(err, b.Store.Close())
	if b.unlock != nil {
		err = errors.Join(err, b.unlock())
	}
	return err
}

// openBackend opens the store that the configuration names.
func openBackend(c config.Config, shelf *retention.Shelf, opening *embedded.Opening, registry prometheus.Registerer, log *slog.Logger) (*backend, error) {
	open := func() (*backend, error) { return openEmbedded(c, shelf, opening, registry, log) }
	if c.Store == config.Cassandra {
		open = func() (*backend, error) { return openCassandra(c, registry, log) }
	}
	b, err := open()
	if err == nil {
		b.Store = authz.Around(b.Store)
		admin.ShowDisk(c.DataDir, b.writable, registry)
	}
	return b, err
}

// openEmbedded opens the store in data_dir.
func openEmbedded(c config.Config, shelf *retention.Shelf, opening *embedded.Opening, registry prometheus.Registerer, log *slog.Logger) (*backend, error) {
	if err := checkDataDir(c.DataDir); err != nil {
		return nil, err
	}
	if err := checkLeftSpools(c, "but the settings say store: embedded. Start with store: cassandra and POST /admin/flush; "+
		"or start with another data_dir, and keep this one until they are stored; or remove the directory, and they are lost"); err != nil {
		return nil, notPermitted(err, c.DataDir)
	}
	if !c.Retention.Enforce {
		shelf = nil
	}
	s, err := embedded.Open(diskfs.Data, c.DataDir, c.Embedded, embedded.Options{
		Book:       shelf,
		Section:    "embedded",
		Registerer: registry, Logger: log, Opening: opening,
		Fatal: func(reason string) {
			log.Error(reason + "; the server exits. All acknowledged points are in the write-ahead log: fix the disk, then restart the server")
			os.Exit(1)
		},
	})
	if _, ok := errors.AsType[*datadir.LockedError](err); ok {
		return nil, fmt.Errorf("%w (--data-dir)", err)
	}
	if damage, ok := errors.AsType[*store.CorruptionError](err); ok {
		return nil, damagedStore(err, damage.File, c.DataDir)
	}
	if err != nil {
		return nil, notPermitted(err, c.DataDir)
	}
	timelines, check, closeTimelines, err := openTimelines(c, s, registry, log)
	if err != nil {
		return nil, errors.Join(notPermitted(err, c.DataDir), s.Close())
	}
	return &backend{
		Store:     s,
		timelines: timelines,
		alsoClose: closeTimelines,
		writable:  s.Healthy,
		routes:    func(queries *query.Engine) []httpapi.Route { return admin.Embedded(s, queries, log) },
		checks: []server.Check{
			{Name: "Datastore-Write", Run: func(context.Context) error { return s.Healthy() }, Quiet: true},
			{Name: "Datastore-Files", Run: func(context.Context) error { return s.Damaged() }, Quiet: true, Partial: true},
			check,
		},
		largest: s.LargestMetrics,
		fastest: s.FastestMetrics,
	}, nil
}

// checkDataDir reports a data directory that exists and cannot be read, before each part of
// the server reports it in its own words.
func checkDataDir(dir string) error {
	if _, err := diskfs.Data.List(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the data directory: %w; let the user of the server read and write there, or use another directory (--data-dir)", err)
	}
	return nil
}

// notPermitted adds advice to the error of a file in dir that this user may not use (for example
// because root has run an import or a repair there), or that nobody may change.
func notPermitted(err error, dir string) error {
	if errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w\n%s", err, datadir.ReadOnlyAdvice(dir))
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w\n%s", err, datadir.OwnerAdvice(dir))
	}
	return err
}

// checkLeftSpools reports points and events that a server over Cassandra has acknowledged in
// this data directory but not delivered, if the present settings would not deliver them. why
// explains that, and what to do.
func checkLeftSpools(c config.Config, why string) error {
	return errors.Join(cassandra.CheckLeftSpools(diskfs.Data, c.DataDir, c.Cassandra.Spool, why), spooled.CheckLeft(diskfs.Data, filepath.Join(c.DataDir, spoolDir), why))
}

// damagedStore says what to do about a file of the store in dir that cannot be read.
func damagedStore(err error, file, dir string) error {
	if remedy := offline.NewerRemedy(diskfs.Data, file); remedy != "" {
		return fmt.Errorf("%w\nnothing is lost: %s", err, remedy)
	}
	return fmt.Errorf("%w\nvarve check --data-dir %s reports what is lost, and what to do about it", err, dir)
}

// openCassandra opens the store in a cluster. It does not wait for the cluster: samples are
// accepted meanwhile.
func openCassandra(c config.Config, registry prometheus.Registerer, log *slog.Logger) (*backend, error) {
	unlock, err := lockDataDir(diskfs.Reading, c.DataDir, log)
	if err != nil {
		return nil, err
	}
	b, err := openLockedCassandra(c, registry, log)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	b.unlock = unlock
	tellOfEmbedded(diskfs.Reading, c.DataDir, log)
	return b, nil
}

// tellOfEmbedded warns that the points of an embedded store in the data directory are not shown.
func tellOfEmbedded(fsys vfs.FS, dir string, log *slog.Logger) {
	if _, err := fsys.Stat(fsys.PathJoin(dir, datadir.Catalogue)); err != nil {
		return
	}
	log.Warn("the data directory also holds an embedded store; a server over Cassandra keeps it but does not show its points and timelines. "+
		"To move the points: varve export --data-dir DIR -f points.gz, then varve import --http-addr ADDR -f points.gz. To end this warning, move the directory away", "data_dir", dir)
}

// lockDataDir prevents a server with the embedded store from using the data directory: the stores
// over Cassandra lock only their spools below it. The lock is for reading, so that commands that
// read an embedded store left there still work, such as an export into this server. Where only the
// spools can be written, as in a container with volumes for them alone, the server starts without.
func lockDataDir(fsys vfs.FS, dir string, log *slog.Logger) (unlock func() error, err error) {
	if err := fsys.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	lock, err := lockToRead(fsys, dir)
	switch {
	case err == nil:
		return lock.Close, nil
	case errors.As(err, new(*datadir.LockedError)):
		return nil, fmt.Errorf("%w (--data-dir)", err)
	case wal.NoSpace(err), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		log.Warn("cannot lock the data directory, because nothing can be written there; do not start another server with it", "data_dir", dir, "error", err)
		return func() error { return nil }, nil
	}
	return nil, err
}

// lockToRead locks a data directory for reading, and creates the lock file.
func lockToRead(fsys vfs.FS, dir string) (io.Closer, error) {
	name := fsys.PathJoin(dir, datadir.LockFile)
	if _, err := fsys.Stat(name); errors.Is(err, fs.ErrNotExist) {
		f, err := fsys.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, fmt.Errorf("lock the data directory: %w", err)
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("lock the data directory: %w", err)
		}
	}
	return datadir.LockToRead(fsys, dir)
}

func openLockedCassandra(c config.Config, registry prometheus.Registerer, log *slog.Logger) (*backend, error) {
	node, err := cluster.ServerID(c.DataDir)
	if err != nil {
		log.Warn("cannot store the id of this server; after a restart its roll-up tasks and delete jobs pause for a minute", "error", err)
	}
	events, err := spooled.Waiting(diskfs.Data, filepath.Join(c.DataDir, spoolDir))
	if err != nil {
		return nil, err
	}
	layouts := c.Cassandra.Layouts()
	rows := layouts[layout.Default].(*kairosrows.Layout)
	s, err := cassandra.OpenKeyspaces(diskfs.Data, c.DataDir, c.Cassandra.Config, cassandra.Options{
		Layouts: layouts, Registerer: registry, Logger: log, Node: node, Events: events,
	})
	if err != nil {
		return nil, err
	}
	engine, waiting, closeTimelines, err := openSharedTimelines(c, s, node, registry, log)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	checks := []server.Check{
		{Name: "Datastore-Write", Run: func(context.Context) error { return s.Healthy() }, Quiet: true},
		{Name: "Datastore-Cassandra", Run: func(context.Context) error { return s.Degraded() }, Quiet: true, Partial: true},
	}
	for _, c := range s.Writers() {
		checks = append(checks, server.Check{Name: "Datastore-Write-" + c.Name, Run: c.Healthy, Quiet: true, Partial: true})
	}
	for _, c := range s.Others() {
		checks = append(checks, server.Check{Name: "Datastore-Cassandra-" + c.Name, Run: c.Healthy, Quiet: true, Partial: true})
	}
	var spool timelines.Spool
	if waiting != nil {
		spool = waiting
		checks = append(checks, server.Check{Name: "Datastore-Timelines", Run: func(context.Context) error { return waiting.Healthy() }, Quiet: true, Partial: true})
	}
	return &backend{
		Store:     s,
		timelines: engine,
		spool:     spool,
		alsoClose: closeTimelines,
		node:      node,
		flush:     s.Flush,
		lease:     sharedLeases(c, s, node, log),
		routes:    func(queries *query.Engine) []httpapi.Route { return admin.Cassandra(s, waiting, queries, log) },
		settings:  []admin.Reloadable{{Key: "cassandra.write.tag_index", Apply: func(c config.Config) error { return rows.SetTagIndex(c.Cassandra.Write.TagIndex) }}},
		checks:    checks,
		writable:  s.Healthy,
		largest:   s.LargestMetrics,
		fastest:   s.FastestMetrics,
	}, nil
}

// openActive opens the list of active queries and logs which queries were running when the server
// last stopped: one of them may have been the cause. If the list cannot be opened, for example on a
// full disk, it returns nil, and the server runs without.
func openActive(c config.Config, log *slog.Logger) *query.ActiveFile {
	active, left, err := query.OpenActiveFile(filepath.Join(c.DataDir, "active-queries"), c.Query.ActiveSlots(), log)
	for _, q := range left {
		log.Info("this query was running when the server last stopped", "began", q.Start, "client", q.Client, "query", q.Query)
	}
	if err != nil {
		log.Warn("cannot record active queries; after a crash, the log will not name the queries that were running", "error", err)
	}
	return active
}

// build creates the front ends of the store.
func (h *instance) build(c config.Config, registry prometheus.Registerer, log *slog.Logger) {
	s, pipeline := h.store, h.pipeline
	name := "KairosDB 1.3.0 (Varve " + versionText() + ")" // clients look for KairosDB's
	h.queries = query.New(s, c.Query, registry, time.Now)
	h.queries.WriteDown(h.active)
	engine := agg.New(h.queries, kairos.NewSaver(pipeline))
	h.api = kairos.New(s, engine, c.Kairos, name, time.Now)
	h.api.Log = log
	h.api.Register(registry)
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	h.rollups = rollup.New(rollup.Options{
		Store: s, Engine: engine, Pipeline: pipeline, Parser: h.api, Config: c.Rollups,
		Registerer: registry, Logger: log, Host: host, Node: s.node, Flush: s.flush, Lease: s.lease, NotesFS: diskfs.Data, NotesDir: filepath.Join(c.DataDir, "rollups"),
	})
	h.front.routes = slices.Concat(
		s.routes(h.queries), admin.Rejected(pipeline), admin.Policies(h.shelf, h.queries, c.Retention.Enforce),
		h.api.Routes(),
		kairosjson.New(pipeline, log).Routes(),
		h.rollups.Routes(),
		transfer.NewAPI(s, pipeline, c.Transfer, registry, log).Routes(),
		opentsdb.New(pipeline, log).Routes(),
		graphite.New(h.queries, s, s.timelines, c.Graphite, h.shelf, time.Now, log).Routes(),
		timelines.New(timelines.Options{
			Engine: s.timelines, Spool: s.spool, Config: c.Timeline, Pipeline: pipeline, Queries: h.queries, Metric: registry, Log: log,
		}).Routes(),
	)
	h.front.streams = map[string]*stream.Server{
		"telnet": telnet.NewServer(pipeline, c.Telnet, telnet.Options{Registerer: registry, Logger: log, Version: name}),
		"carbon": carbon.NewLineServer(pipeline, c.Carbon, carbon.Options{Registerer: registry, Logger: log}),
		"pickle": carbon.NewPickleServer(pipeline, c.Carbon, carbon.Options{Registerer: registry, Logger: log}),
	}
	h.front.datagrams = map[string]*carbon.DatagramServer{
		"carbon_udp": carbon.NewDatagramServer(pipeline, c.Carbon, carbon.Options{Registerer: registry, Logger: log}),
	}
	h.front.checks = append([]server.Check{queryCheck(c, s)}, s.checks...)
}

// queryCheck queries the store. Over Cassandra a failure is partial: points are accepted
// without the cluster, so load balancers should continue to send them here.
func queryCheck(c config.Config, s *backend) server.Check {
	check := server.QueryCheck(s)
	check.Partial = c.Store == config.Cassandra
	return check
}
