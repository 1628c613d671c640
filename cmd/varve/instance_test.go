package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/admin"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/retention"
	"varve/internal/server"
	"varve/internal/store"
	"varve/internal/stream"
	"varve/internal/tenant"
	"varve/internal/units"
)

// A tenantsOf is the instances of some tenants, asked without a server in between.
type tenantsOf struct {
	t         *testing.T
	config    config.Config
	instances instances
	front     server.Front
	mux       *http.ServeMux
	metrics   prometheus.Gatherers
}

// openTenants opens the instances of tenants in a directory.
func openTenants(t *testing.T, dir string, change func(*tenant.Config), names ...string) *tenantsOf {
	t.Helper()
	c := config.Default()
	c.DataDir = dir
	for _, name := range names {
		one := units.Defaults[tenant.Config]()
		one.Name = name
		if change != nil {
			change(&one)
		}
		c.Tenants = append(c.Tenants, one)
	}
	return openConfigured(t, c)
}

// openConfigured is openTenants with any configuration.
func openConfigured(t *testing.T, c config.Config) *tenantsOf {
	t.Helper()
	registry := prometheus.NewRegistry()
	instances, front, err := openAll(c, registry, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	front.Routes = append(front.Routes, tenant.Routes([]httpapi.Route{httpapi.On("GET", "/of/the/server", httpapi.Admin, func(w http.ResponseWriter, _ *http.Request) {})}, nil, nil)...)
	mux := http.NewServeMux()
	for _, r := range front.Routes {
		mux.Handle(strings.TrimSpace(r.Method+" "+r.Path), r.Handler)
	}
	return &tenantsOf{t, c, instances, front, mux, append(prometheus.Gatherers{registry}, front.Metrics...)}
}

// openAll opens the instances of a configuration, which log to a writer.
func openAll(c config.Config, registry *prometheus.Registry, log io.Writer) (instances, server.Front, error) {
	return openInstances(c, fittings{book: &retention.Book{}, opening: &embedded.Opening{}}, registry, slog.New(slog.NewTextHandler(log, nil)))
}

// ask sends a request of a tenant and returns the answer's status and body.
func (w *tenantsOf) ask(of, method, path, body string) (int, string) {
	w.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, r.WithContext(principal.With(r.Context(), principal.Principal{Tenant: of})))
	return answer.Code, answer.Body.String()
}

// want fails unless the answer is a success that has all of these texts.
func (w *tenantsOf) want(of, method, path, body string, texts ...string) {
	w.t.Helper()
	code, answer := w.ask(of, method, path, body)
	if code >= 300 {
		w.t.Fatalf("%s: %s %s: %d %s", of, method, path, code, answer)
	}
	for _, text := range texts {
		if !strings.Contains(answer, text) {
			w.t.Errorf("%s: %s %s has no %q: %s", of, method, path, text, answer)
		}
	}
}

// lines sends lines of a tenant over a stream, and returns when they are stored.
func (w *tenantsOf) lines(of, name, text string) {
	w.t.Helper()
	served := w.front.Streams[name].(*stream.Server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(principal.With(w.t.Context(), principal.Principal{Tenant: of}))
	done := make(chan error, 1)
	go func() { done <- served.Serve(ctx, l) }()
	defer func() { cancel(); <-done }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, text)
	c.(*net.TCPConn).CloseWrite()
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	io.Copy(io.Discard, c) // until the server has closed it
}

// Nothing that a tenant sends is seen by another, by whatever protocol and question, and
// what a tenant deletes is gone from its own store alone. All of it is there again after
// a restart.
func TestTenantsAreApart(t *testing.T) {
	dir := t.TempDir()
	w := openTenants(t, dir, nil, "acme", "globex")
	all := []string{principal.Default, "acme", "globex"}
	now := time.Now().UnixMilli()
	for _, of := range all {
		own := "of_" + of
		w.want(of, "POST", "/api/v1/datapoints", fmt.Sprintf(`[{"name":%q,"tags":{"secret_%s":"v"},"datapoints":[[%d,1]]},{"name":"shared","tags":{"h":%q},"datapoints":[[%d,2]]}]`, own, of, now, own, now))
		w.want(of, "POST", "/api/put", fmt.Sprintf(`{"metric":"put.%s","timestamp":%d,"value":1,"tags":{"h":"a"}}`, own, now))
		w.lines(of, "telnet", fmt.Sprintf("put telnet.%s %d 1 h=a\n", own, now))
		w.lines(of, "carbon", fmt.Sprintf("carbon.%s 1 %d\n", own, now/1000))
		w.want(of, "POST", "/api/v1/metadata/s/k/"+own, "text")
		w.want(of, "POST", "/api/v1/rollups", fmt.Sprintf(`{"name":"roll %s","execution_interval":{"value":1,"unit":"hours"},"rollups":[{"save_as":"r","query":{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"m","aggregators":[{"name":"sum","sampling":{"value":1,"unit":"hours"}}]}]}}]}`, own))
		w.want(of, "POST", "/events", fmt.Sprintf(`{"what":"event %s","tags":"x"}`, own))
		w.ask(of, "POST", "/api/v1/datapoints", fmt.Sprintf(`[{"name":"refused_%s","tags":{"h":""},"datapoints":[[%d,1]]}]`, own, now))
	}
	see := func() {
		t.Helper()
		for _, of := range all {
			for _, q := range []struct{ method, path, body, has string }{
				{"GET", "/api/v1/metricnames", "", "telnet.of_"},
				{"GET", "/api/v1/tagnames", "", "secret_"},
				{"GET", "/api/v1/tagvalues", "", "of_"},
				{"POST", "/api/v1/datapoints/query", `{"start_absolute":1,"metrics":[{"name":"shared"}]}`, "of_"},
				{"POST", "/api/v1/datapoints/query/tags", `{"start_absolute":1,"metrics":[{"name":"shared"}]}`, "of_"},
				{"GET", "/api/v1/metadata/s/k", "", "of_"},
				{"GET", "/api/v1/rollups", "", "roll of_"},
				{"GET", "/metrics/find?query=carbon.*", "", "of_"},
				{"GET", "/metrics/index.json", "", "carbon.of_"},
				{"GET", "/tags", "", "secret_"},
				{"GET", "/render?format=json&target=carbon.*&from=-1h", "", "carbon.of_"},
				{"GET", "/events/get_data", "", "event of_"},
				{"GET", "/api/v1/export?metric=shared", "", "of_"},
				{"GET", "/admin/cardinality", "", "telnet.of_"},
			} {
				code, answer := w.ask(of, q.method, q.path, q.body)
				if code != 200 || !strings.Contains(answer, q.has+of) {
					t.Errorf("%s: %s does not have its own %s: %d %s", of, q.path, q.has, code, answer)
				}
				for _, other := range all {
					if other != of && (strings.Contains(answer, "of_"+other) || strings.Contains(answer, "secret_"+other)) {
						t.Errorf("%s: %s shows what is of %s: %s", of, q.path, other, answer)
					}
				}
			}
		}
	}
	see()
	for _, of := range all {
		if _, answer := w.ask(of, "GET", "/admin/rejected", ""); !strings.Contains(answer, "refused_of_"+of) || !strings.Contains(answer, `"total": 1,`) {
			t.Errorf("%s: refused inputs: %s", of, answer)
		}
	}
	if err := w.instances.Close(); err != nil {
		t.Fatal(err)
	}

	w = openTenants(t, dir, nil, "acme", "globex")
	defer w.instances.Close()
	see()
	w.want("acme", "POST", "/api/v1/datapoints/delete", `{"start_absolute":1,"metrics":[{"name":"shared"}]}`)
	for _, of := range all {
		_, answer := w.ask(of, "POST", "/api/v1/datapoints/query", `{"start_absolute":1,"metrics":[{"name":"shared"}]}`)
		if has := strings.Contains(answer, "of_"+of); has == (of == "acme") {
			t.Errorf("%s, after a delete of acme: %s", of, answer)
		}
	}
}

// What concerns the whole server is refused to tenants, and so is everything to a tenant
// that does not exist.
func TestTenantsAndTheServer(t *testing.T) {
	w := openTenants(t, t.TempDir(), nil, "acme")
	defer w.instances.Close()
	w.want(principal.Default, "GET", "/of/the/server", "")
	w.want("", "GET", "/of/the/server", "") // nobody was asked who he is
	for _, of := range []string{"acme", "unknown"} {
		if code, answer := w.ask(of, "GET", "/of/the/server", ""); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", of, code, answer)
		}
	}
	if code, answer := w.ask("unknown", "GET", "/api/v1/metricnames", ""); code != http.StatusForbidden {
		t.Errorf("a tenant that does not exist: %d %s", code, answer)
	}
	w.lines("unknown", "telnet", "put m 1 1 h=a\n")
	for _, of := range []string{principal.Default, "acme"} {
		if _, answer := w.ask(of, "GET", "/api/v1/metricnames", ""); answer != `{"results":[]}` {
			t.Errorf("%s has points of a tenant that does not exist: %s", of, answer)
		}
	}
}

// The limits of a tenant are its own, finite, and change with a reload. Its metrics have
// its name, and nothing of it is public.
func TestLimitsOfTenants(t *testing.T) {
	w := openTenants(t, t.TempDir(), func(c *tenant.Config) { c.MaxSeries = 2 }, "acme")
	defer w.instances.Close()
	put := func(of, name string) string {
		_, answer := w.ask(of, "POST", "/api/v1/datapoints", fmt.Sprintf(`{"name":%q,"tags":{"h":"a"},"datapoints":[[%d,1]]}`, name, time.Now().UnixMilli()))
		return answer
	}
	for i := range 4 {
		put("acme", fmt.Sprint("m", i))
		if answer := put(principal.Default, fmt.Sprint("m", i)); answer != "" {
			t.Errorf("the default tenant: %s", answer)
		}
	}
	if answer := put("acme", "m9"); !strings.Contains(answer, "tenants[acme].max_series of 2") {
		t.Errorf("beyond the limit: %s", answer)
	}
	next := w.config
	next.Tenants = slices.Clone(next.Tenants)
	next.Tenants[0].MaxSeries = 10
	settings := w.instances.reloadable(w.config)
	i := slices.IndexFunc(settings, func(s admin.Reloadable) bool { return s.Key == "tenants" })
	if err := settings[i].Apply(next); err != nil {
		t.Fatal(err)
	}
	if answer := put("acme", "m9"); answer != "" {
		t.Errorf("after a reload: %s", answer)
	}
	next.Tenants = append(next.Tenants, tenant.Config{Name: "globex"})
	if err := settings[i].Apply(next); err != admin.ErrNeedsRestart {
		t.Errorf("another tenant: %v", err)
	}

	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				found[f.GetName()+" "+l.GetName()+"="+l.GetValue()] = true
			}
		}
	}
	if !found["varve_ingest_samples_total tenant=acme"] || !found["varve_store_writable tenant=acme"] {
		t.Error("the metrics of acme are not there")
	}
	for _, check := range w.front.Checks {
		if err := check.Run(t.Context()); err != nil || strings.Contains(check.Name, "acme") {
			t.Errorf("health check %s: %v", check.Name, err)
		}
	}
}

// One connection more than a tenant may have is closed; another tenant is served.
func TestConnectionsOfTenants(t *testing.T) {
	w := openTenants(t, t.TempDir(), func(c *tenant.Config) { c.MaxConnections = 1 }, "acme", "globex")
	defer w.instances.Close()
	served := w.front.Streams["telnet"].(*stream.Server)
	dial := func(of string) net.Conn {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(principal.With(context.Background(), principal.Principal{Tenant: of}))
		done := make(chan error, 1)
		go func() { done <- served.Serve(ctx, l) }()
		t.Cleanup(func() { cancel(); <-done })
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprint(c, "version\n")
		c.SetReadDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	answered := func(c net.Conn) bool {
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	}
	if !answered(dial("acme")) || answered(dial("acme")) || !answered(dial("globex")) || !answered(dial(principal.Default)) {
		t.Error("want one connection of each tenant, and no second one of acme")
	}
}

// A data directory without tenants opens as it always did, also after it had some.
func TestTenantsComeAndGo(t *testing.T) {
	dir := t.TempDir()
	w := openTenants(t, dir, nil)
	w.want("", "POST", "/api/v1/datapoints", `{"name":"m","tags":{"h":"a"},"datapoints":[[1,1]]}`)
	w.instances.Close()
	w = openTenants(t, dir, nil, "acme")
	w.want("acme", "POST", "/api/v1/datapoints", `{"name":"n","tags":{"h":"a"},"datapoints":[[1,1]]}`)
	w.instances.Close()
	if _, err := os.Stat(filepath.Join(dir, "tenants", "acme", "catalogue")); err != nil {
		t.Error(err)
	}
	w = openTenants(t, dir, nil)
	w.want("", "GET", "/api/v1/metricnames", "", `{"results":["m"]}`)
	w.instances.Close()
	w = openTenants(t, dir, nil, "acme")
	w.want("acme", "GET", "/api/v1/metricnames", "", `{"results":["n"]}`)
	w.instances.Close()
}

// A tenant whose directory is missing, for example after the restore of a backup of the default
// tenant, is not replaced by an empty one. A directory that no tenant of the configuration has is
// named in the log.
func TestMissingTenants(t *testing.T) {
	dir := t.TempDir()
	w := openTenants(t, dir, nil, "acme")
	w.instances.Close()
	acme := config.TenantDir(dir, "acme")
	aside := filepath.Join(t.TempDir(), "acme")
	rename(t, acme, aside)
	for range 2 {
		_, _, err := openAll(w.config, prometheus.NewRegistry(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "the data of tenant acme is missing: there is no "+acme) {
			t.Fatalf("without its directory: %v", err)
		}
		if _, err := os.Stat(acme); err == nil {
			t.Fatal("the start made a directory")
		}
	}
	if err := os.Mkdir(acme, 0o700); err != nil {
		t.Fatal(err)
	}
	openTenants(t, dir, nil, "acme").instances.Close()

	var log strings.Builder
	without := w.config
	without.Tenants = nil
	all, _, err := openAll(without, prometheus.NewRegistry(), &log)
	if err != nil {
		t.Fatal(err)
	}
	all.Close()
	if !strings.Contains(log.String(), "tenants=acme") {
		t.Errorf("a directory that no tenant has is not in the log: %s", log.String())
	}
	rename(t, acme, filepath.Join(t.TempDir(), "acme"))
	openTenants(t, dir, nil).instances.Close() // forgets it
	openTenants(t, dir, nil, "acme").instances.Close()
}

// A server does not start without a tenant whose points wait for Cassandra: they are nowhere else.
func TestUnlistedTenantsWhosePointsWait(t *testing.T) {
	without := config.Default()
	without.Store, without.DataDir, without.Cassandra.Hosts = config.Cassandra, t.TempDir(), []string{cqltest.ClosedPort(t)}
	with := without
	for _, name := range []string{"acme", "idle"} {
		one := units.Defaults[tenant.Config]()
		one.Name = name
		with.Tenants = append(with.Tenants, one)
	}
	w := openConfigured(t, with)
	w.want("acme", "POST", "/api/v1/datapoints", `{"name":"m","tags":{"h":"a"},"datapoints":[[1,1]]}`)
	w.instances.Close()
	if err := os.MkdirAll(filepath.Join(config.TenantDir(with.DataDir, "lost+found"), "spool", "target"), 0o755); err != nil { // of no tenant
		t.Fatal(err)
	}
	for _, kind := range []string{config.Cassandra, config.Embedded} {
		without.Store = kind
		all, _, err := openAll(without, prometheus.NewRegistry(), io.Discard)
		want := "1 samples in " + filepath.Join(config.TenantDir(with.DataDir, "acme"), "spool") + " wait for keyspace kairosdb_acme, but tenants no longer has acme. Start with"
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "idle") || strings.Contains(err.Error(), "lost+found") {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
		if err == nil {
			all.Close()
		}
	}
	openConfigured(t, with).instances.Close()
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// What only some stores can do is found through the backend: over Cassandra, one sample
// that rows cannot hold would else refuse all that come with it.
func TestAbilitiesOfBackends(t *testing.T) {
	c := config.Default()
	c.Store, c.DataDir, c.Cassandra.Hosts = config.Cassandra, t.TempDir(), []string{cqltest.ClosedPort(t)}
	b, err := openBackend(c, nil, &embedded.Opening{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, ok := store.As[store.SampleChecker](b); !ok {
		t.Error("samples are not checked before they fill a batch")
	}
}

// One tenant's requests cannot hold all connections of the server: beyond its limit they
// are answered 503 at once.
func TestRequestsOfTenants(t *testing.T) {
	w := openTenants(t, t.TempDir(), func(c *tenant.Config) { c.MaxConnections = 2 }, "acme", "globex")
	defer w.instances.Close()
	var sending sync.WaitGroup
	var bodies []*slowBody
	for range 2 {
		body := &slowBody{begun: make(chan struct{}), end: make(chan struct{})}
		bodies = append(bodies, body)
		sending.Go(func() {
			r := httptest.NewRequest("POST", "/api/v1/datapoints", body)
			w.mux.ServeHTTP(httptest.NewRecorder(), r.WithContext(principal.With(r.Context(), principal.Principal{Tenant: "acme"})))
		})
		<-body.begun
	}
	if code, answer := w.ask("acme", "GET", "/api/v1/metricnames", ""); code != http.StatusServiceUnavailable || !strings.Contains(answer, "max_connections") {
		t.Errorf("a third request: %d %s", code, answer)
	}
	w.want("globex", "GET", "/api/v1/metricnames", "")
	w.want(principal.Default, "GET", "/api/v1/metricnames", "")
	for _, b := range bodies {
		close(b.end)
	}
	sending.Wait()
	w.want("acme", "GET", "/api/v1/metricnames", "")
}

// A slowBody is a body that does not come before end is closed.
type slowBody struct {
	begun, end chan struct{}
	once       sync.Once
}

func (b *slowBody) Read([]byte) (int, error) {
	b.once.Do(func() { close(b.begun) })
	<-b.end
	return 0, io.EOF
}

// A setting of the whole server that is reloaded holds for its tenants too, as far as they
// have none of their own.
func TestReloadReachesTenants(t *testing.T) {
	w := openTenants(t, t.TempDir(), nil, "acme")
	defer w.instances.Close()
	next := w.config
	next.Query.MaxSamples = 1
	settings := w.instances.reloadable(w.config)
	i := slices.IndexFunc(settings, func(s admin.Reloadable) bool { return s.Key == "query.max_samples" })
	if err := settings[i].Apply(next); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{principal.Default, "acme"} {
		w.want(of, "POST", "/api/v1/datapoints", `{"name":"m","tags":{"h":"a"},"datapoints":[[1,1],[2,2]]}`)
		if _, answer := w.ask(of, "POST", "/api/v1/datapoints/query", `{"start_absolute":1,"metrics":[{"name":"m"}]}`); !strings.Contains(answer, "query.max_samples") {
			t.Errorf("%s: %s", of, answer)
		}
	}
}
