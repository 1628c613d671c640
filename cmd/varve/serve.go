package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/admin"
	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/loglimit"
	"varve/internal/machine"
	"varve/internal/server"
	"varve/internal/work"
)

// serve runs the server until a signal stops it.
func serve(t terminal, args []string) error {
	began := time.Now()
	hangups := admin.CatchHangups()
	loaded, err := load(t, args)
	if err != nil {
		return err
	}
	d := newDaemon(loaded, t.stderr)
	defer d.lines.Close()
	d.tell(loaded)
	limitGarbage()
	if err := d.open(); err != nil {
		return err
	}
	defer d.front.Audit.Close()
	if d.keeper != nil {
		defer background(context.Background(), d.keeper.Run)()
	}
	reloads := d.reloader(func() (*config.Loaded, error) { return loadAgain(t, args) })
	d.front.Routes = append(d.front.Routes, reloads.Routes()...)
	return d.run(reloads, hangups, began, t.stdout)
}

// A daemon is a server with its stores.
type daemon struct {
	asked config.Config // as configured
	c     config.Config // the same, with no more connections than the process may open

	level    *slog.LevelVar
	lines    *loglimit.Handler
	log      *slog.Logger // writes lines
	registry *prometheus.Registry

	keeper    *auth.Keeper // nil without authentication
	server    *server.Server
	ended     chan error // receives the result of the server once it has ended
	stop      func()     // the server
	instances instances
	front     server.Front
}

func newDaemon(loaded *config.Loaded, stderr io.Writer) *daemon {
	d := &daemon{asked: loaded.Config, c: loaded.Config, level: &slog.LevelVar{}, registry: prometheus.NewRegistry(), ended: make(chan error, 1)}
	if files, known := machine.Files(); known {
		d.c = d.asked.WithinFiles(files)
	}
	d.level.Set(d.c.Log.Level)
	d.lines = loglimit.NewHandler(d.c.Log.Logger(stderr, d.level).Handler(), d.registry)
	d.log = slog.New(d.lines)
	return d
}

// tell logs unusual facts about the configuration.
func (d *daemon) tell(loaded *config.Loaded) {
	for _, f := range loaded.Foreign {
		tellForeign(f, d.log)
	}
	tellFiles(d.asked, d.c, d.log)
	if tuned := loaded.Tuned(); tuned != nil {
		d.log.Info("--tune changes constants; it is for tests only", "constants", tuned)
	}
}

// open listens, and opens the stores while the server answers that it starts. An error leaves
// nothing open.
func (d *daemon) open() (err error) {
	book, err := d.c.Book(d.log)
	if err != nil {
		return err
	}
	opening := &embedded.Opening{}
	if d.keeper, err = newKeeper(d.c, d.registry, d.log); err != nil {
		return err
	}
	d.server = server.New(server.Options{Config: d.c.Server, Version: versionText(), Log: d.log, Registry: d.registry, Keeper: d.keeper, Opening: opening.String})
	if err := d.server.Listen(); err != nil {
		return err // before a data directory is created
	}
	running, stop := context.WithCancel(context.Background())
	d.stop = stop
	go func() { d.ended <- d.server.Run(running) }() // answers 503 until the stores are open
	work.Register(d.registry, d.log)
	if d.instances, d.front, err = openInstances(d.c, fittings{book: book, opening: opening}, d.registry, d.log); err != nil {
		stop()
		return errors.Join(err, <-d.ended)
	}
	if d.front.Audit, err = audit.Open(d.c.Audit.Path(d.c.DataDir), d.c.Audit, d.registry, d.log); err != nil {
		stop()
		return errors.Join(err, <-d.ended, d.instances.Close())
	}
	return nil
}

// reloader returns what changes settings while the server runs. loadAgain reads the configuration.
func (d *daemon) reloader(loadAgain func() (*config.Loaded, error)) *admin.Reloader {
	reloads := admin.NewReloader(d.asked, loadAgain, d.log,
		admin.Reloadable{Key: "log.level", Apply: func(c config.Config) error { d.level.Set(c.Log.Level); return nil }},
		admin.Reloadable{Key: "server.allowed_origins", Apply: func(c config.Config) error { d.server.SetAllowedOrigins(c.Server.AllowedOrigins); return nil }})
	reloads.AddFiles(admin.ReloadedFiles{
		Name: "server.tls", Keys: []string{"server.tls.cert_file", "server.tls.key_file", "server.tls.client_ca_file", "server.tls.min_version"},
		Read: func(c config.Config) (func(), error) { return d.server.ReadTLS(c.Server) },
	})
	reloads.Add(d.instances.reloadable(d.c)...)
	reloads.AddFiles(admin.ReloadedRules(d.instances.shelves(), d.log))
	if d.keeper != nil {
		reloads.AddFiles(admin.ReloadedFiles{
			Name: "auth", Keys: []string{"auth.rules", "auth.proxies"},
			Read: func(c config.Config) (func(), error) { return d.keeper.Read(c.Auth) },
		})
	}
	return reloads
}

// run serves until a signal, or until the server fails, and closes the stores. began is when the
// process began.
func (d *daemon) run(reloads *admin.Reloader, hangups admin.Hangups, began time.Time, stdout io.Writer) error {
	defer d.stop()
	// Only now do signals stop the server in order. Until here, everything can be replayed, so a
	// kill during a long start loses nothing and need not wait for its end.
	ctx, restore := interruptible()
	defer restore()
	signalled := make(chan time.Time, 1)
	manager := serviceManager()
	context.AfterFunc(ctx, func() {
		signalled <- time.Now()
		manager.tell(managerStopping, d.log)
		d.stop()
		restore() // a second signal ends the process at once
	})

	d.instances.loadRollups(ctx) // before points arrive
	d.server.Mount(d.front)
	announce(stdout, d.c, d.server)
	d.tellReady(time.Since(began))
	stopRollups := background(ctx, d.instances.runRollups)
	stopReloads := background(ctx, func(ctx context.Context) {
		reloads.ReloadAt(ctx, hangups, func(reloading bool) {
			if reloading {
				manager.tell(managerReloading, d.log)
			} else {
				manager.tell(managerReady, d.log)
			}
		})
	})
	manager.tell(managerReady, d.log)
	err := <-d.ended
	stopReloads()
	stopRollups()
	stopped := time.Now() // unless a signal has ended the server
	if ctx.Err() != nil {
		stopped = <-signalled
	}
	if closeErr := closeWithin(d.instances, time.Until(stopped.Add(d.c.Server.ShutdownTimeout))); closeErr != nil {
		return errors.Join(err, fmt.Errorf("close the store in %s: %w", d.c.DataDir, closeErr))
	}
	d.log.Info("stopped", "after", time.Since(stopped).Round(time.Millisecond))
	return err
}

func (d *daemon) tellReady(after time.Duration) {
	said := []any{"version", versionText()}
	for _, stream := range server.StreamNames() {
		said = append(said, stream, d.server.Addr(stream))
	}
	d.log.Info("ready", append(said, "store", d.c.Store, "data_dir", d.c.DataDir, "tenants", len(d.instances), "after", after.Round(time.Millisecond))...)
}

// newKeeper returns the keeper that authenticates senders, nil without authentication.
func newKeeper(c config.Config, registry *prometheus.Registry, log *slog.Logger) (*auth.Keeper, error) {
	if !c.Auth.Enabled {
		return nil, nil
	}
	return auth.NewKeeper(c.Auth, auth.Options{TokenFile: tokenPath(c), Registerer: registry, Logger: log, Now: time.Now})
}

// tellFiles logs that the process may open fewer files than the configured connections need.
func tellFiles(asked, c config.Config, log *slog.Logger) {
	if c.Connections() < asked.Connections() {
		log.Warn("the limit of open files is too low for the configured connections, so the server accepts fewer; raise the limit (LimitNOFILE= in the unit, ulimit -n in a shell, nofile in a container)",
			"enough", asked.Connections()+config.OtherFiles, "server.max_connections", c.Server.MaxConnections, "telnet.max_connections", c.Telnet.MaxConnections, "carbon.max_connections", c.Carbon.MaxConnections)
	}
}

// tellForeign logs which keys of another server's configuration have no effect.
func tellForeign(f config.Foreign, log *slog.Logger) {
	log.Info("using "+f.Name+"; varve config shows the resulting settings", "file", f.Path, "settings", len(f.Settings))
	for _, r := range f.Notes {
		log.Info(f.Name+": keys without effect: "+r.Why, "keys", strings.Join(r.Keys, " "))
	}
	for _, r := range f.Warnings {
		log.Warn(f.Name+": keys without effect: "+r.Why, "keys", strings.Join(r.Keys, " "))
	}
}

// background runs f until ctx ends or stop is called. stop waits until f has
// returned.
func background(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	return func() { cancel(); <-ended }
}

// closeWithin closes c and gives up after limit. In that case the process ends
// while some samples are in the log but not in files.
func closeWithin(c io.Closer, limit time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- c.Close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return errors.New("not finished within server.shutdown_timeout; no acknowledged point is lost: the next start replays the log")
	}
}
