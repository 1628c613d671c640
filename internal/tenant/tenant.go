// Package tenant puts the front ends of several tenants behind the routes and streams of
// one server.
//
//	                  one route, one port
//	                           |
//	          principal: which tenant is the sender?
//	        /                  |                   \
//	   default               acme                 globex
//	routes, lines         routes, lines        routes, lines
//	pipeline, queries     pipeline, queries    pipeline, queries
//	store                 store                store
//
// Tenants share the process and nothing else: each has a store, a pipeline, caches and
// limits of its own. So there is no filter that a new front end could forget, and neither
// the content nor the duration of an answer depends on the data of another tenant.
package tenant

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/stream"
)

// Routes returns the routes in own, those of the default tenant. Each passes requests
// of another tenant to the route with the same method and path in that tenant's list. A
// route that only the default tenant has concerns the whole server; other tenants get
// 403. At most limits[name] requests of another tenant are answered at once, so that
// one tenant cannot occupy all connections of the server; further ones get 503. Routes
// panics if a tenant has a route that own lacks: routes are code, not input.
func Routes(own []httpapi.Route, others map[string][]httpapi.Route, limits map[string]int) []httpapi.Route {
	type place struct{ method, path string }
	theirs := map[place]map[string]http.Handler{}
	for name, list := range others {
		inside := &requests{limit: int64(limits[name])}
		for _, r := range list {
			at := place{r.Method, r.Path}
			if theirs[at] == nil {
				theirs[at] = map[string]http.Handler{}
			}
			theirs[at][name] = inside.bounded(r.Handler)
		}
	}
	merged := make([]httpapi.Route, len(own))
	for i, r := range own {
		at := place{r.Method, r.Path}
		r.Handler = choice{r.Handler, theirs[at]}
		merged[i] = r
		delete(theirs, at)
	}
	for at := range theirs {
		panic("tenant: the default tenant has no route " + at.method + " " + at.path)
	}
	return merged
}

// requests bounds the requests of one tenant that are answered at once.
type requests struct {
	limit  int64
	inside atomic.Int64
}

func (q *requests) bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer q.inside.Add(-1)
		if q.inside.Add(1) > q.limit {
			httpapi.WriteUnavailable(w, r, fmt.Sprintf("limit max_connections of the tenant, %d, reached: that many of its requests are being answered", q.limit))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// A choice is one route of all tenants.
type choice struct {
	own    http.Handler
	others map[string]http.Handler
}

func (c choice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := principal.Of(r.Context()).Tenant
	if isDefault(name) {
		c.own.ServeHTTP(w, r)
		return
	}
	h, ok := c.others[name]
	if !ok {
		httpapi.WriteErrors(w, http.StatusForbidden, "this concerns the whole server; tenants other than "+principal.Default+" have no access to it")
		return
	}
	h.ServeHTTP(w, r)
}

// isDefault reports whether a sender is of the default tenant. Without
// authentication a sender has no tenant.
func isDefault(name string) bool { return name == principal.Default || name == "" }

// A Stream serves a tenant's connections of a stream.
type Stream struct {
	Handler stream.Handler
	Limit   int // connections at once
}

// Refused counts connections that were closed because their tenant already had
// max_connections of the stream, by stream and tenant.
func Refused(r prometheus.Registerer) *prometheus.CounterVec {
	set := collectors.Named("varve_tenant_")
	defer set.MustRegister(r)
	return set.CounterVec("connections_refused_total", "Connections closed because their tenant already had max_connections of the stream, by stream and tenant.", "stream", "tenant")
}

// Handler returns the handler of one stream. own serves the connections of the default
// tenant, others those of the tenants with these names. A connection of an unknown
// tenant is closed.
func Handler(name string, own stream.Handler, others map[string]Stream, refused *prometheus.CounterVec) stream.Handler {
	d := &door{own: own, others: map[string]*place{}}
	for tenant, s := range others {
		d.others[tenant] = &place{Stream: s, refused: refused.WithLabelValues(name, tenant)}
	}
	return d
}

// A door passes connections to the handlers of their tenants.
type door struct {
	own    stream.Handler
	others map[string]*place
}

type place struct {
	Stream
	open    atomic.Int64
	refused prometheus.Counter
}

// ServeConn implements [stream.Handler].
func (d *door) ServeConn(ctx context.Context, c *stream.Conn) {
	name := principal.Of(ctx).Tenant
	if isDefault(name) {
		d.own.ServeConn(ctx, c)
		return
	}
	if p := d.others[name]; p != nil {
		p.serve(ctx, c)
	}
}

func (p *place) serve(ctx context.Context, c *stream.Conn) {
	defer p.open.Add(-1)
	if p.open.Add(1) > int64(p.Limit) {
		p.refused.Inc()
		return
	}
	p.Handler.ServeConn(ctx, c)
}
