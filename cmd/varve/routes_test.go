package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/admin"
	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/httpapi"
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
	if got != string(want) {
		t.Errorf("the routes are not those of %s:\n%s", golden, got)
	}
}

// mounted returns the routes of a server with a kind of store.
func mounted(t *testing.T, kind string) []httpapi.Route {
	t.Helper()
	c := config.Default()
	c.Store, c.DataDir, c.Cassandra.Hosts = kind, t.TempDir(), []string{closedPort(t)}
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	houses, front, err := openHouses(c, fittings{shelf: retention.NewShelf(&retention.Book{}), opening: &embedded.Opening{}}, registry, log)
	if err != nil {
		t.Fatal(err)
	}
	defer houses.Close()
	front.Routes = append(front.Routes, admin.NewReloader(c, nil, log).Routes()...)
	return server.New(server.Options{Config: c.Server, Log: log, Registry: registry, Front: front}).Routes()
}
