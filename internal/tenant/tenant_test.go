package tenant

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/stream"
	"varve/internal/units"
)

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

// Each request is answered by the route of its sender's tenant; a route that only the
// default tenant has concerns the whole server.
func TestRoutes(t *testing.T) {
	merged := Routes(
		[]httpapi.Route{httpapi.On("GET", "/both", httpapi.Read, says("own")), httpapi.On("POST", "/both", httpapi.Write, says("own post")), httpapi.On("GET", "/alone", httpapi.Read, says("own"))},
		map[string][]httpapi.Route{"acme": {httpapi.On("GET", "/both", httpapi.Read, says("acme"))}},
		map[string]int{"acme": 1})
	for _, c := range []struct {
		route  int
		tenant string
		status int
		text   string
	}{
		{0, principal.Default, 200, "own"}, {0, "", 200, "own"}, {0, "acme", 200, "acme"}, {0, "unknown", 403, "whole server"},
		{1, principal.Default, 200, "own post"}, {1, "acme", 403, "whole server"}, {2, "acme", 403, "whole server"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		answer := httptest.NewRecorder()
		merged[c.route].Handler.ServeHTTP(answer, r.WithContext(principal.With(r.Context(), principal.Principal{Tenant: c.tenant})))
		if answer.Code != c.status || !strings.Contains(answer.Body.String(), c.text) {
			t.Errorf("route %d for %q: %d %s", c.route, c.tenant, answer.Code, answer.Body)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a route that only a tenant has is taken")
		}
	}()
	Routes(nil, map[string][]httpapi.Route{"acme": {httpapi.On("GET", "/new", httpapi.Read, says(""))}}, nil)
}

// Invalid tenants are named by their index in the list.
func TestValidate(t *testing.T) {
	good := func(name string, change func(*Config)) Config {
		c := units.Defaults[Config]()
		c.Name = name
		if change != nil {
			change(&c)
		}
		return c
	}
	if err := Validate([]Config{good("a", nil), good("b", nil)}); err != nil {
		t.Error(err)
	}
	var many []Config
	for i := range maxTenants {
		many = append(many, good(fmt.Sprint("t", i), nil))
	}
	if err := Validate(many); err != nil {
		t.Error(err)
	}
	for want, list := range map[string][]Config{
		"a server has at most 100":         append(many, good("a", nil)),
		"tenants[1].name":                  {good("a", nil), good("a", nil)},
		"tenants[0].name":                  {good(principal.Default, nil)},
		"want a lower-case letter":         {good("A", nil)},
		"tenants[0].samples_per_second":    {good("a", func(c *Config) { c.SamplesPerSecond = 0 })},
		"tenants[0].new_series_per_second": {good("a", func(c *Config) { c.NewSeriesPerSecond = -1 })},
		"tenants[0].max_series":            {good("a", func(c *Config) { c.MaxSeries = 0 })},
		"tenants[0].max_series_memory":     {good("a", func(c *Config) { c.MaxSeriesMemory = 0 })},
		"tenants[0].query_memory":          {good("a", func(c *Config) { c.QueryMemory = 0 })},
		"tenants[0].max_concurrent":        {good("a", func(c *Config) { c.MaxConcurrent = -1 })},
		"tenants[0].max_connections":       {good("a", func(c *Config) { c.MaxConnections = 0 })},
		"at most 100":                      make([]Config, 101),
	} {
		if err := Validate(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// hold is a handler that says in begun that it serves, and goes on when goOn is closed.
type hold struct{ begun, goOn chan struct{} }

func newHold() hold { return hold{make(chan struct{}), make(chan struct{})} }

func (h hold) ServeHTTP(http.ResponseWriter, *http.Request) { h.wait() }

func (h hold) ServeConn(context.Context, *stream.Conn) { h.wait() }

func (h hold) wait() {
	h.begun <- struct{}{}
	<-h.goOn
}

// A tenant has at most as many requests at once as its limit allows, on all of its routes together.
func TestRequestsAtOnce(t *testing.T) {
	h := newHold()
	merged := Routes(
		[]httpapi.Route{httpapi.On("GET", "/slow", httpapi.Read, says("own")), httpapi.On("GET", "/fast", httpapi.Read, says("own"))},
		map[string][]httpapi.Route{"acme": {httpapi.On("GET", "/slow", httpapi.Read, h.ServeHTTP), httpapi.On("GET", "/fast", httpapi.Read, says("acme"))}},
		map[string]int{"acme": 2})
	get := func(route int, tenant string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/", nil)
		answer := httptest.NewRecorder()
		merged[route].Handler.ServeHTTP(answer, r.WithContext(principal.With(r.Context(), principal.Principal{Tenant: tenant})))
		return answer
	}
	var slow sync.WaitGroup
	slow.Go(func() { get(0, "acme") })
	<-h.begun
	if a := get(1, "acme"); a.Code != 200 || a.Body.String() != "acme" {
		t.Fatalf("the second request: %d %s", a.Code, a.Body)
	}
	slow.Go(func() { get(0, "acme") })
	<-h.begun
	for range 2 {
		if a := get(1, "acme"); a.Code != 503 || !strings.Contains(a.Body.String(), "max_connections of the tenant, 2, reached") || strings.Contains(a.Body.String(), "acme") {
			t.Errorf("the third request: %d %s", a.Code, a.Body)
		}
	}
	if a := get(1, principal.Default); a.Code != 200 {
		t.Errorf("a request of the default tenant: %d %s", a.Code, a.Body)
	}
	close(h.goOn)
	slow.Wait()
	if a := get(1, "acme"); a.Code != 200 {
		t.Errorf("a request after the slow ones: %d %s", a.Code, a.Body)
	}
}

// Each connection is served by the handler of its sender's tenant, within the limit of that tenant.
func TestHandler(t *testing.T) {
	own, acme := newHold(), newHold()
	close(own.goOn)
	refused := Refused(prometheus.NewRegistry())
	h := Handler("telnet", own, map[string]Stream{"acme": {acme, 2}, "globex": {acme, 2}}, refused)
	serve := func(tenant string) {
		h.ServeConn(principal.With(context.Background(), principal.Principal{Tenant: tenant}), nil)
	}
	want := func(n float64) {
		t.Helper()
		for tenant, n := range map[string]float64{"acme": n, "globex": 0} {
			var m dto.Metric
			if err := refused.WithLabelValues("telnet", tenant).Write(&m); err != nil {
				t.Fatal(err)
			}
			if got := m.Counter.GetValue(); got != n {
				t.Errorf("%v connections of %s are counted as refused, want %v", got, tenant, n)
			}
		}
	}
	var open sync.WaitGroup
	served := func(tenant string, by hold) {
		t.Helper()
		end := make(chan struct{})
		open.Go(func() { defer close(end); serve(tenant) })
		select {
		case <-by.begun:
		case <-end:
			t.Fatalf("a connection of %q is not served", tenant)
		}
	}
	served(principal.Default, own)
	served("", own)
	serve("unknown") // no handler, or this would wait for a reader of begun
	served("acme", acme)
	served("acme", acme)
	want(0)
	serve("acme")
	serve("acme")
	want(2)
	served("globex", acme)
	close(acme.goOn)
	open.Wait()
	served("acme", acme)
	open.Wait()
	want(2)
}

// Limits that follow from others.
func TestDerivedLimits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 8: 4} {
		runtime.GOMAXPROCS(processors)
		if got := (Config{}).Concurrent(); got != want {
			t.Errorf("%d queries at once on %d processors, want %d", got, processors, want)
		}
	}
	c := Config{NewSeriesPerSecond: 7, MaxConcurrent: 3}
	if c.Concurrent() != 3 || c.SeriesBurst() != 70 {
		t.Errorf("%d queries and %d new series at once", c.Concurrent(), c.SeriesBurst())
	}
}
