package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/ingest/opentsdb"
	"varve/internal/ingest/telnet"
	"varve/internal/kairos"
	"varve/internal/query"
	"varve/internal/rollup"
	"varve/internal/seldom"
	"varve/internal/server"
	"varve/internal/transfer"
	"varve/internal/work"
)

// serve runs the server until a signal stops it.
func serve(t terminal, args []string) error {
	began := time.Now()
	loaded, err := load(t, args)
	if err != nil {
		return err
	}
	c := loaded.Config
	level := &slog.LevelVar{}
	level.Set(c.Log.Level)
	registry := prometheus.NewRegistry()
	lines := seldom.NewHandler(c.Log.Logger(t.stderr, level).Handler(), registry)
	defer lines.Close()
	log := slog.New(lines)
	tellKairosDB(loaded.KairosDB, log)
	limitGarbage()
	opening := &embedded.Opening{}
	srv := server.New(server.Options{
		Config: c.Server, Version: versionText(), Log: log, Registry: registry, Opening: opening.String,
	})
	if err := srv.Listen(); err != nil {
		return err // before a data directory is made
	}
	running, stopServer := context.WithCancel(context.Background())
	defer stopServer()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(running) }() // answers 503 until the store is open
	store, err := openBackend(c, opening, registry, log)
	if err != nil {
		stopServer()
		return errors.Join(err, <-ended)
	}
	reloads := &reloader{
		load: func() (*config.Loaded, error) { return load(t, args) },
		log:  log, running: c,
		settings: append([]reloadable{
			{"log.level", func(c config.Config) error { level.Set(c.Log.Level); return nil }},
			{"server.allowed_origins", func(c config.Config) error { srv.SetAllowedOrigins(c.Server.AllowedOrigins); return nil }},
		}, store.settings...),
	}
	store.routes = append(store.routes, reloads.route())
	active := openActive(c, log)
	if active != nil {
		defer active.Close()
	}
	pipeline := ingest.New(store, c.Ingest, ingest.Options{
		Registerer: registry, Logger: log,
		Largest: store.largest, Fastest: store.fastest,
	})
	defer pipeline.Close()
	front, rollups, limits := build(c, store, pipeline, active, registry, log)
	reloads.settings = append(reloads.settings, limits...)

	// Signals are taken over only now: what came before can be replayed, so
	// a kill during a long start loses nothing and need not wait for its end.
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	signalled := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() {
		signalled <- time.Now()
		stopServer()
		restore() // a second signal kills
	})

	rollups.Load(ctx) // before points come in
	srv.Mount(front)
	announce(t.stdout, c, srv)
	log.Info("ready", "version", versionText(), "http", srv.Addr("http"), "telnet", srv.Addr("telnet"),
		"store", c.Store, "data_dir", c.DataDir, "after", time.Since(began).Round(time.Millisecond))
	stopRollups := background(ctx, rollups.Run)
	stopReloads := background(ctx, reloads.onHangup)
	err = <-ended
	stopReloads()
	stopRollups()
	stopped := time.Now() // unless a signal has ended the server
	if ctx.Err() != nil {
		stopped = <-signalled
	}
	if closeErr := closeWithin(store, time.Until(stopped.Add(c.Server.ShutdownTimeout))); closeErr != nil {
		return errors.Join(err, fmt.Errorf("close the store in %s: %w", c.DataDir, closeErr))
	}
	log.Info("stopped", "after", time.Since(stopped).Round(time.Millisecond))
	return err
}

// tellKairosDB says which keys of a configuration of KairosDB set nothing.
func tellKairosDB(k *config.KairosDB, log *slog.Logger) {
	if k == nil {
		return
	}
	log.Info("the configuration of KairosDB is used; varve config shows what comes of it", "file", k.Path, "settings", len(k.Mapping.Settings))
	for _, r := range k.Notes() {
		log.Info("KairosDB's configuration: set nothing: "+r.Why, "keys", strings.Join(r.Keys, " "))
	}
	for _, r := range k.Warnings() {
		log.Warn("KairosDB's configuration: set nothing: "+r.Why, "keys", strings.Join(r.Keys, " "))
	}
}

// background runs f until ctx ends or stop is called, which waits for its end.
func background(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	return func() { cancel(); <-ended }
}

// closeWithin closes c and gives up after limit. The process then ends with
// samples that are in the log but not in files.
func closeWithin(c io.Closer, limit time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- c.Close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return errors.New("not done within server.shutdown_timeout; nothing acknowledged is lost, the next start reads it from the log")
	}
}

// openActive opens the list of active queries and tells which ones the last end
// of the server broke off: one of them may have been its cause. Without the list,
// for example on a full disk, the server runs too, and nil is returned.
func openActive(c config.Config, log *slog.Logger) *query.ActiveFile {
	active, left, err := query.OpenActiveFile(filepath.Join(c.DataDir, "active-queries"), c.Query.ActiveSlots(), log)
	for _, q := range left {
		log.Info("this query was running when the server ended the last time", "began", q.Start, "client", q.Client, "query", q.Query)
	}
	if err != nil {
		log.Warn("active queries are not written down", "error", err)
	}
	return active
}

// build puts the front ends on the store.
func build(c config.Config, s *backend, pipeline *ingest.Pipeline, active *query.ActiveFile, registry *prometheus.Registry, log *slog.Logger) (server.Front, *rollup.Scheduler, []reloadable) {
	name := "KairosDB 1.3.0 (Varve " + versionText() + ")" // clients look for KairosDB's
	work.Register(registry, log)
	engine := query.New(s, c.Query, registry, time.Now)
	engine.SaveTo(kairos.NewSaver(pipeline))
	engine.WriteDown(active)
	api := kairos.New(s, engine, c.Kairos, name, time.Now)
	api.Log = log
	api.Register(registry)
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	rollups := rollup.New(rollup.Options{
		Store: s, Engine: engine, Pipeline: pipeline, Parser: api, Config: c.Rollups,
		Registerer: registry, Logger: log, Host: host, Node: s.node, Flush: s.flush, NotesFS: vfs.Default, NotesDir: filepath.Join(c.DataDir, "rollups"),
	})
	routes := []httpapi.Route{
		{Method: http.MethodGet, Path: "/admin/rejected", Parameters: httpapi.None, Handler: pipeline.RejectedHandler()},
	}
	routes = append(routes, s.routes...)
	routes = append(routes, api.Routes()...)
	routes = append(routes, kairosjson.New(pipeline, log).Routes()...)
	routes = append(routes, rollups.Routes()...)
	routes = append(routes, transfer.NewAPI(s, pipeline, c.Transfer, registry, log).Routes()...)
	routes = append(routes, opentsdb.New(pipeline, log).Routes()...)
	return server.Front{
		Routes: c.Kairos.Gate(routes),
		Telnet: telnet.NewServer(pipeline, c.Telnet, telnet.Options{Registerer: registry, Logger: log, Version: name}),
		Checks: append([]server.Check{server.AliveCheck(), queryCheck(c, s)}, s.checks...),
	}, rollups, reloadableLimits(engine, pipeline, api)
}

// reloadableLimits are those that an operator turns in trouble. What changes one
// changes all that belong to it.
func reloadableLimits(engine *query.Engine, pipeline *ingest.Pipeline, api *kairos.API) (limits []reloadable) {
	add := func(apply func(config.Config), keys ...string) {
		for _, key := range keys {
			limits = append(limits, reloadable{key, func(c config.Config) error { apply(c); return nil }})
		}
	}
	add(func(c config.Config) { engine.SetLimits(c.Query) }, "query.max_series", "query.max_samples", "query.max_memory",
		"query.timeout", "query.max_concurrent", "query.max_queued", "query.max_wait")
	add(func(c config.Config) { pipeline.SetSeriesLimits(c.Ingest) },
		"ingest.max_series", "ingest.max_series_memory", "ingest.new_series_per_second", "ingest.new_series_burst")
	add(func(c config.Config) { api.SetSlowQuery(c.Kairos.SlowQuery) }, "kairos.slow_query")
	return limits
}

// queryCheck is not a reason to turn senders away where points are taken without
// the cluster.
func queryCheck(c config.Config, s *backend) server.Check {
	check := server.QueryCheck(s)
	check.Partial = c.Store == config.Cassandra
	return check
}

// announce tells a person what to do next.
func announce(w io.Writer, c config.Config, srv *server.Server) {
	dir := c.DataDir
	if full, err := filepath.Abs(dir); err == nil && full != dir {
		dir += " (" + full + ")"
	}
	api, lines := dialable(srv.Addr("http")), dialable(srv.Addr("telnet"))
	fmt.Fprintf(w, "Varve %s is ready.\n\n", versionText())
	fmt.Fprintf(w, "  HTTP    http://%s\n", api)
	if lines != "" {
		fmt.Fprintf(w, "  telnet  %s\n", lines)
	}
	if pprof := srv.Addr("pprof"); pprof != "" {
		fmt.Fprintf(w, "  pprof   http://%s/debug/pprof/\n", dialable(pprof))
	}
	fmt.Fprintf(w, "  data    %s\n\n", dir)
	if lines == "" {
		fmt.Fprintf(w, "Send a first point:\n  curl -s http://%s/api/v1/datapoints -d \"%s\"\n", api, firstPoint)
	} else {
		host, port, _ := net.SplitHostPort(lines)
		fmt.Fprintf(w, "Send a first point:\n  echo \"put demo.load $(date +%%s) 1.5 host=a\" | nc -w 1 %s %s\n", host, port)
	}
	fmt.Fprintf(w, "Read it back:\n  curl -s http://%s/api/v1/datapoints/query -d '%s'\n\nCtrl-C stops the server.\n", api, firstQuery)
}

// firstPoint is a point of now, within double quotes of a shell.
const firstPoint = `[{\"name\":\"demo.load\",\"tags\":{\"host\":\"a\"},\"datapoints\":[[$(date +%s)000,1.5]]}]`

// firstQuery reads the last hour of the metric that announce sends a point of.
const firstQuery = `{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"demo.load"}]}`

// dialable turns the address of a listener on all interfaces into one that can
// be connected to from this machine.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
