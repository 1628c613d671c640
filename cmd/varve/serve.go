package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/admin"
	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/loglimit"
	"varve/internal/machine"
	"varve/internal/remote"
	"varve/internal/server"
	"varve/internal/work"
)

// serve runs the server until a signal stops it.
func serve(t terminal, args []string) error {
	began := time.Now()
	loaded, err := load(t, args)
	if err != nil {
		return err
	}
	asked := loaded.Config
	c := asked
	if files, known := machine.Files(); known {
		c = asked.WithinFiles(files)
	}
	level := &slog.LevelVar{}
	level.Set(c.Log.Level)
	registry := prometheus.NewRegistry()
	lines := loglimit.NewHandler(c.Log.Logger(t.stderr, level).Handler(), registry)
	defer lines.Close()
	log := slog.New(lines)
	tellForeign(loaded.KairosDB, log)
	tellForeign(loaded.Carbon, log)
	tellFiles(asked, c, log)
	if tuned := loaded.Tuned(); tuned != nil {
		log.Info("--tune changes constants; it is for tests only", "constants", tuned)
	}
	book, err := c.Book(log)
	if err != nil {
		return err
	}
	limitGarbage()
	opening := &embedded.Opening{}
	keeper, err := newKeeper(c, registry, log)
	if err != nil {
		return err
	}
	srv := server.New(server.Options{Config: c.Server, Version: versionText(), Log: log, Registry: registry, Keeper: keeper, Opening: opening.String})
	if err := srv.Listen(); err != nil {
		return err // before a data directory is made
	}
	running, stopServer := context.WithCancel(context.Background())
	defer stopServer()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(running) }() // answers 503 until the store is open
	work.Register(registry, log)
	instances, front, err := openInstances(c, fittings{book: book, opening: opening}, registry, log)
	if err != nil {
		stopServer()
		return errors.Join(err, <-ended)
	}
	if front.Audit, err = audit.Open(c.Audit.Path(c.DataDir), c.Audit, registry, log); err != nil {
		stopServer()
		return errors.Join(err, <-ended, instances.Close())
	}
	defer front.Audit.Close()
	reloads := admin.NewReloader(asked, func() (*config.Loaded, error) { return loadAgain(t, args) }, log,
		admin.Reloadable{Key: "log.level", Apply: func(c config.Config) error { level.Set(c.Log.Level); return nil }},
		admin.Reloadable{Key: "server.allowed_origins", Apply: func(c config.Config) error { srv.SetAllowedOrigins(c.Server.AllowedOrigins); return nil }})
	reloads.AddFiles(admin.ReloadedFiles{
		Name: "server.tls", Keys: []string{"server.tls.cert_file", "server.tls.key_file", "server.tls.client_ca_file", "server.tls.min_version"},
		Read: func(c config.Config) (func(), error) { return srv.ReadTLS(c.Server) },
	})
	reloads.Add(instances.reloadable(c)...)
	reloads.AddFiles(admin.ReloadedRules(instances.shelves(), log))
	front.Routes = append(front.Routes, reloads.Routes()...)
	if keeper != nil {
		reloads.AddFiles(admin.ReloadedFiles{
			Name: "auth", Keys: []string{"auth.rules", "auth.proxies"},
			Read: func(c config.Config) (func(), error) { return keeper.Read(c.Auth) },
		})
		defer background(context.Background(), keeper.Run)()
	}

	// Signals are taken over only now: what came before can be replayed, so
	// a kill during a long start loses nothing and need not wait for its end.
	ctx, restore := interruptible()
	defer restore()
	signalled := make(chan time.Time, 1)
	manager := serviceManager()
	context.AfterFunc(ctx, func() {
		signalled <- time.Now()
		manager.tell(managerStopping, log)
		stopServer()
		restore() // a second signal kills
	})
	reloadAtHangup := reloads.OnHangup(func(reloading bool) { // before anybody is told that the server is ready
		if reloading {
			manager.tell(managerReloading, log)
		} else {
			manager.tell(managerReady, log)
		}
	})

	instances.loadRollups(ctx) // before points come in
	srv.Mount(front)
	announce(t.stdout, c, srv)
	log.Info("ready", "version", versionText(), "http", srv.Addr("http"), "telnet", srv.Addr("telnet"), "carbon", srv.Addr("carbon"), "pickle", srv.Addr("pickle"), "carbon_udp", srv.Addr("carbon_udp"),
		"store", c.Store, "data_dir", c.DataDir, "tenants", len(instances), "after", time.Since(began).Round(time.Millisecond))
	stopRollups := background(ctx, instances.runRollups)
	stopReloads := background(ctx, reloadAtHangup)
	manager.tell(managerReady, log)
	err = <-ended
	stopReloads()
	stopRollups()
	stopped := time.Now() // unless a signal has ended the server
	if ctx.Err() != nil {
		stopped = <-signalled
	}
	if closeErr := closeWithin(instances, time.Until(stopped.Add(c.Server.ShutdownTimeout))); closeErr != nil {
		return errors.Join(err, fmt.Errorf("close the store in %s: %w", c.DataDir, closeErr))
	}
	log.Info("stopped", "after", time.Since(stopped).Round(time.Millisecond))
	return err
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
func tellForeign(f *config.Foreign, log *slog.Logger) {
	if f == nil {
		return
	}
	log.Info("using "+f.Name+"; varve config shows the resulting settings", "file", f.Path, "settings", f.Settings)
	for _, r := range f.Notes {
		log.Info(f.Name+": keys without effect: "+r.Why, "keys", strings.Join(r.Keys, " "))
	}
	for _, r := range f.Warnings {
		log.Warn(f.Name+": keys without effect: "+r.Why, "keys", strings.Join(r.Keys, " "))
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
		return errors.New("not finished within server.shutdown_timeout; no acknowledged point is lost: the next start replays the log")
	}
}

// announce tells a person what to do next.
func announce(w io.Writer, c config.Config, srv *server.Server) {
	dir := c.DataDir
	if full, err := filepath.Abs(dir); err == nil && full != dir {
		dir += " (" + full + ")"
	}
	api, lines := remote.Dialable(srv.Addr("http")), remote.Dialable(srv.Addr("telnet"))
	fmt.Fprintf(w, "Varve %s is ready.\n\n", versionText())
	scheme := "http"
	if c.Server.TLS.Speaks("http") {
		scheme = "https"
	}
	fmt.Fprintf(w, "  HTTP    %s://%s\n", scheme, api)
	if lines != "" {
		secured := ""
		if c.Server.TLS.Speaks("telnet") {
			secured = " (TLS)"
		}
		fmt.Fprintf(w, "  telnet  %s%s\n", lines, secured)
	}
	for _, carbon := range []struct{ stream, what string }{{"carbon", "lines"}, {"pickle", "pickles"}, {"carbon_udp", "lines, UDP"}} {
		if addr := srv.Addr(carbon.stream); addr != "" {
			if c.Server.TLS.Speaks(carbon.stream) {
				carbon.what += ", TLS"
			}
			fmt.Fprintf(w, "  carbon  %s (%s)\n", remote.Dialable(addr), carbon.what)
		}
	}
	if pprof := srv.Addr("pprof"); pprof != "" {
		fmt.Fprintf(w, "  pprof   http://%s/debug/pprof/\n", remote.Dialable(pprof))
	}
	fmt.Fprintf(w, "  data    %s\n\n", dir)
	curl := fmt.Sprintf("curl -sS%s%s %s://%s", trust(c), credentials(c), scheme, api)
	if c.Auth.Enabled {
		fmt.Fprintf(w, "Create a token, if there is none yet:\n  TOKEN=$(varve token create me --role read,write%s)\n", tokenPlace(c))
	}
	if lines == "" || c.Server.TLS.Speaks("telnet") || c.Auth.Enabled {
		fmt.Fprintf(w, "Send a first point:\n  %s/api/v1/datapoints -d \"%s\"\n", curl, firstPoint)
	} else {
		host, port, _ := net.SplitHostPort(lines)
		fmt.Fprintf(w, "Send a first point:\n  echo \"put demo.load $(date +%%s) 1.5 host=a\" | nc -w 1 %s %s\n", host, port)
	}
	fmt.Fprintf(w, "Read it back:\n  %s/api/v1/datapoints/query -d '%s'\n\nCtrl-C stops the server.\n", curl, firstQuery)
}

// tokenPlace returns the flags with which varve token uses the server's token file.
func tokenPlace(c config.Config) string {
	flags := " --data-dir " + quoted(c.DataDir)
	if c.Auth.TokenFile != "" {
		flags += " --auth-token-file " + quoted(c.Auth.TokenFile)
	}
	return flags
}

// quoted is a word of a shell's command line.
func quoted(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("./_-+:@%,", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// trust returns the flags with which curl accepts the server's certificate, whichever authority
// has signed it.
func trust(c config.Config) string {
	if !c.Server.TLS.Speaks("http") {
		return ""
	}
	return " --cacert " + quoted(c.Server.TLS.CertFile)
}

// credentials returns the flags with which curl authenticates.
func credentials(c config.Config) string {
	if !c.Auth.Enabled {
		return ""
	}
	return ` -H "Authorization: Bearer $TOKEN"`
}

// firstPoint is a point of now, within double quotes of a shell.
const firstPoint = `[{\"name\":\"demo.load\",\"tags\":{\"host\":\"a\"},\"datapoints\":[[$(date +%s)000,1.5]]}]`

// firstQuery reads the last hour of the metric that announce sends a point of.
const firstQuery = `{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"demo.load"}]}`
