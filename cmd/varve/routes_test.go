package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/admin"
	"varve/internal/auth"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/retention"
	"varve/internal/server"
)

// TestAccessOfRoutes walks all routes of a server, over both kinds of store. Each
// states which access it needs, and testdata/routes.txt lists it, so that a change of
// who may do what shows in a review (-update rewrites the list).
func TestAccessOfRoutes(t *testing.T) {
	const golden = "testdata/routes.txt"
	over := func(store string) string {
		var lines []string
		for _, r := range mounted(t, store) {
			if r.Access == httpapi.Unstated || r.Access == httpapi.Public && r.Changes() {
				t.Errorf("%s %s has the access %s", r.Method, r.Path, r.Access)
			}
			line := fmt.Sprintf("%-7s %s %s", r.Method, r.Path, r.Access)
			if r.Changes() && r.Method == http.MethodGet {
				line += ", changes something"
			}
			if r.Metrics {
				line += ", by metric"
			}
			if r.Server {
				line += ", of the server"
			}
			lines = append(lines, line+"\n")
		}
		slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[8:]+a[:8], b[8:]+b[:8]) })
		return strings.Join(lines, "")
	}
	got := over(config.Embedded)
	if other := over(config.Cassandra); other != got {
		t.Errorf("over Cassandra the routes are others:\n%s", other)
	}
	if *updateHelp {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.SplitAfter(string(want), "\n")
	for line := range strings.Lines(got) {
		if !slices.Contains(listed, line) {
			t.Errorf("%s lacks %s(-update rewrites the list)", golden, line)
		}
	}
	for _, line := range listed {
		if !strings.Contains(got, line) {
			t.Errorf("%s has, but the server does not: %s(-update rewrites the list)", golden, line)
		}
	}
}

// TestRoutesAreClosed walks all routes of a server that asks senders who they are. Each one
// that is not public is closed to senders without a token, to a token with all rights but the
// one that the route states, to an operator of one tenant if the route concerns the server,
// and to a token for some metrics unless the route holds to them.
func TestRoutesAreClosed(t *testing.T) {
	path, tokens := filepath.Join(t.TempDir(), "tokens.json"), map[string]string{}
	token := func(name string, g auth.Grant) {
		g.Name = name
		_, shown, err := auth.Create(path, g, time.Time{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = shown
	}
	rights := []principal.Rights{principal.Read, principal.Write, principal.Delete, principal.Metrics}
	for _, without := range rights {
		token("no "+without.String(), auth.Grant{Rights: principal.All &^ principal.Admin &^ without, Tenants: []string{auth.AnyTenant}})
	}
	token("no admin", auth.Grant{Rights: principal.All &^ principal.Admin, Tenants: []string{auth.AnyTenant}})
	token("tenant", auth.Grant{Rights: principal.Admin, Tenants: []string{principal.Default}})
	token("prefix", auth.Grant{Rights: principal.Read | principal.Write | principal.Delete, Prefix: "own."})

	c := config.Default()
	c.Auth.Enabled, c.Auth.TokenFile = true, path
	c.Server.HTTPAddr, c.Server.PprofAddr = "127.0.0.1:0", "127.0.0.1:0"
	c.Server.TelnetAddr, c.Server.CarbonAddr, c.Server.PickleAddr = "", "", ""
	srv := mountedServer(t, c)
	defer runServer(t, srv)()
	ask := func(r httpapi.Route, who string) int {
		addr := srv.Addr("http")
		if strings.HasPrefix(r.Path, "/debug/") {
			addr = srv.Addr("pprof")
		}
		request, err := http.NewRequest(r.Method, "http://"+addr+regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(r.Path, "x"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if who != "" {
			request.Header.Set("Authorization", "Bearer "+tokens[who])
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	closed := 0
	for _, r := range srv.Routes() {
		if r.Access == httpapi.Public {
			continue
		}
		closed++
		if got := ask(r, ""); got != http.StatusUnauthorized {
			t.Errorf("%s %s without a token: %d", r.Method, r.Path, got)
		}
		if got := ask(r, "no "+r.Access.String()); got != http.StatusForbidden {
			t.Errorf("%s %s without the role %s: %d", r.Method, r.Path, r.Access, got)
		}
		if r.Server {
			if got := ask(r, "tenant"); got != http.StatusForbidden {
				t.Errorf("%s %s for an operator of a tenant: %d", r.Method, r.Path, got)
			}
		}
		if !r.Metrics {
			if got := ask(r, "prefix"); got != http.StatusForbidden {
				t.Errorf("%s %s for a token that is limited to some metrics: %d", r.Method, r.Path, got)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if closed < 80 {
		t.Errorf("only %d routes are not public", closed)
	}
}

// mounted returns the routes of a server with a kind of store.
func mounted(t *testing.T, kind string) []httpapi.Route {
	t.Helper()
	c := config.Default()
	c.Store, c.Cassandra.Hosts = kind, []string{cqltest.ClosedPort(t)}
	return mountedServer(t, c).Routes()
}

// mountedServer returns a server with its front ends.
func mountedServer(t *testing.T, c config.Config) *server.Server {
	t.Helper()
	c.DataDir = t.TempDir()
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	keeper, err := newKeeper(c, registry, log)
	if err != nil {
		t.Fatal(err)
	}
	instances, front, err := openInstances(c, fittings{book: &retention.Book{}, opening: &embedded.Opening{}}, registry, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { instances.Close() })
	front.Routes = append(front.Routes, admin.NewReloader(c, nil, log).Routes()...)
	return server.New(server.Options{Config: c.Server, Log: log, Registry: registry, Keeper: keeper, Front: front})
}

// runServer runs a server until stop is called.
func runServer(t *testing.T, srv *server.Server) (stop func()) {
	t.Helper()
	if err := srv.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	return func() { cancel(); <-done }
}
