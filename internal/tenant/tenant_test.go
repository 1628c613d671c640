package tenant

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"varve/internal/httpapi"
	"varve/internal/principal"
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
		var c Config
		c.SetDefaults()
		c.Name = name
		if change != nil {
			change(&c)
		}
		return c
	}
	if err := Validate([]Config{good("a", nil), good("b", nil)}); err != nil {
		t.Error(err)
	}
	for want, list := range map[string][]Config{
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
