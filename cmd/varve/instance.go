package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/admin"
	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/ingest/carbon"
	"varve/internal/kairos"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/rollup"
	"varve/internal/server"
	"varve/internal/stream"
	"varve/internal/tenant"
)

// An instance has everything that belongs to one tenant alone. Instances do not
// know each other.
type instance struct {
	name     string // of the tenant
	log      *slog.Logger
	store    *backend
	shelf    *retention.Shelf // has its rules
	pipeline *ingest.Pipeline
	active   *query.ActiveFile // nil without one
	queries  *query.Engine
	api      *kairos.API
	rollups  *rollup.Scheduler
	front    front
}

// A front is the front ends of one instance.
type front struct {
	routes    []httpapi.Route
	streams   map[string]*stream.Server
	datagrams map[string]*carbon.DatagramServer
	checks    []server.Check
}

// fittings are shared by all instances of a server.
type fittings struct {
	book    *retention.Book // the rules of all tenants
	opening *embedded.Opening
}

// openInstance opens the store that the configuration names and builds the front ends on
// it.
func openInstance(name string, c config.Config, f fittings, registry prometheus.Registerer, log *slog.Logger) (*instance, error) {
	shelf := retention.NewShelf(f.book.For(name))
	store, err := openBackend(c, shelf, f.opening, registry, log)
	if err != nil {
		return nil, err
	}
	return newInstance(name, c, store, openActive(c, log), shelf, registry, log), nil
}

func newInstance(name string, c config.Config, store *backend, active *query.ActiveFile, shelf *retention.Shelf, registry prometheus.Registerer, log *slog.Logger) *instance {
	h := &instance{name: name, log: log, store: store, active: active, shelf: shelf}
	h.pipeline = ingest.New(store, c.Ingest, ingest.Options{
		Registerer: registry, Logger: log, Limits: limitsOf(name),
		Largest: store.largest, Fastest: store.fastest,
	})
	h.build(c, registry, log)
	return h
}

// limitsOf returns the section of the settings that limit a tenant's series and samples, "" for
// ingest.
func limitsOf(name string) string {
	if name == principal.Default {
		return ""
	}
	return "tenants[" + name + "]"
}

// reloadable lists the settings of one instance that can change while it runs.
func (h *instance) reloadable() []admin.Reloadable {
	return append(slices.Clone(h.store.settings), admin.ReloadableLimits(h.queries, h.pipeline)...)
}

// close ends everything that uses the store, and then the store.
func (h *instance) close() error {
	h.pipeline.Close()
	if h.active != nil {
		h.active.Close()
	}
	return h.store.Close()
}

// instances are the instances of all tenants of a server. The first one belongs to the
// default tenant.
type instances []*instance

// openInstances opens the store of the default tenant and those of the tenants that the
// configuration names, and puts their front ends behind the same routes and streams. An
// error leaves none of them open.
func openInstances(c config.Config, f fittings, registry *prometheus.Registry, log *slog.Logger) (instances, server.Front, error) {
	first, err := openInstance(principal.Default, c, f, registry, log)
	if err != nil {
		return nil, server.Front{}, err
	}
	all := instances{first}
	known, err := openCensus(context.Background(), c, first.store, log)
	if err != nil {
		return nil, server.Front{}, errors.Join(err, all.Close())
	}
	var metrics []prometheus.Gatherer
	for _, t := range c.Tenants {
		own := prometheus.NewRegistry()
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"tenant": t.Name}, own)
		h, err := openInstance(t.Name, c.Of(t), f, labelled, log.With("tenant", t.Name))
		if err != nil {
			return nil, server.Front{}, errors.Join(fmt.Errorf("open the store of tenant %s: %w", t.Name, err), all.Close())
		}
		known.opened(context.Background(), t.Name)
		all, metrics = append(all, h), append(metrics, own)
	}
	all.shareProcessors(c)
	front := all.front(c, registry)
	front.Metrics = metrics
	return all, front, nil
}

// shareProcessors limits the processors that the costly queries of all tenants together use at
// once. One processor remains for short queries, points and connections: while all processors are
// busy, Go polls the network only every 10 ms. There is no limit over Cassandra, where queries
// wait more than they compute.
func (s instances) shareProcessors(c config.Config) {
	if len(s) == 1 || c.Store == config.Cassandra {
		return
	}
	turns := query.NewTurns(max(1, runtime.GOMAXPROCS(0)-1))
	for _, h := range s {
		h.queries.Share(turns)
	}
}

// shelves returns the shelves with the rules of the tenants, by tenant.
func (s instances) shelves() map[string]*retention.Shelf {
	shelves := map[string]*retention.Shelf{}
	for _, h := range s {
		shelves[h.name] = h.shelf
	}
	return shelves
}

// Close closes all instances at the same time.
func (s instances) Close() error {
	errs := make([]error, len(s))
	var all sync.WaitGroup
	for i, h := range s {
		all.Go(func() {
			if err := h.close(); err != nil && i > 0 {
				errs[i] = fmt.Errorf("tenant %s: %w", h.name, err)
			} else {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// loadRollups reads the roll-up tasks of all instances, before points arrive.
func (s instances) loadRollups(ctx context.Context) {
	for _, h := range s {
		h.rollups.Load(ctx)
	}
}

// runRollups runs the roll-up tasks of all instances until ctx ends.
func (s instances) runRollups(ctx context.Context) {
	var all sync.WaitGroup
	for _, h := range s {
		all.Go(func() { h.rollups.Run(ctx) })
	}
	all.Wait()
}

// front puts the front ends of all instances behind the same routes and streams.
func (s instances) front(c config.Config, registry prometheus.Registerer) server.Front {
	own := s[0].front
	whole := server.Front{
		Routes:    own.routes,
		Streams:   map[string]server.StreamServer{},
		Datagrams: map[string]server.DatagramServer{},
		Checks:    append([]server.Check{server.AliveCheck()}, own.checks...),
	}
	whole.Tenants = func(name string) bool {
		return slices.ContainsFunc(s, func(h *instance) bool { return h.name == name })
	}
	if len(s) > 1 {
		s.share(&whole, c, registry)
	}
	for name, served := range own.streams {
		whole.Streams[name] = served
	}
	for name, served := range own.datagrams {
		whole.Datagrams[name] = served
	}
	whole.Routes = c.Kairos.Gate(whole.Routes)
	return whole
}

// share lets the front ends of the first instance pass requests and connections
// of other tenants to their instances.
func (s instances) share(whole *server.Front, c config.Config, registry prometheus.Registerer) {
	routes, limits := map[string][]httpapi.Route{}, map[string]int{}
	for i, h := range s[1:] {
		routes[h.name], limits[h.name] = h.front.routes, c.Tenants[i].MaxConnections
	}
	whole.Routes = tenant.Routes(whole.Routes, routes, limits)
	whole.Checks = append(whole.Checks, s.check())
	refused := tenant.Refused(registry)
	for name, served := range s[0].front.streams {
		others := map[string]tenant.Stream{}
		for i, h := range s[1:] {
			others[h.name] = tenant.Stream{Handler: h.front.streams[name].Handler(), Limit: c.Tenants[i].MaxConnections}
		}
		served.SetHandler(tenant.Handler(name, served.Handler(), others, refused))
	}
	for name, served := range s[0].front.datagrams {
		for _, h := range s[1:] {
			served.HandOver(h.name, h.front.datagrams[name])
		}
	}
}

// check fails if a check of any tenant fails. Health is public, so only the log names
// the tenant.
func (s instances) check() server.Check {
	return server.Check{Name: "Tenants", Quiet: true, Partial: true, Run: func(ctx context.Context) error {
		var ailing int
		for _, h := range s[1:] {
			for _, check := range h.front.checks {
				if err := check.Run(ctx); err != nil {
					h.log.Warn("health check failed", "check", check.Name, "error", err)
					ailing++
					break
				}
			}
		}
		if ailing > 0 {
			return fmt.Errorf("%d of %d tenants are not healthy; the log names them", ailing, len(s)-1)
		}
		return nil
	}}
}

// reloadable lists the settings that can change while the instances are open, for all of them.
// Adding, removing or moving a tenant needs a restart.
func (s instances) reloadable(began config.Config) []admin.Reloadable {
	settings := s[0].reloadable()
	for k := range settings {
		own := settings[k].Apply
		settings[k].Apply = func(next config.Config) error {
			return errors.Join(own(next), s.reloadTenants(began, next, settings[k].Key))
		}
	}
	return append(settings, admin.Reloadable{Key: "tenants", Apply: func(next config.Config) error {
		if !slices.EqualFunc(began.Tenants, next.Tenants, samePlace) {
			return admin.ErrNeedsRestart
		}
		return s.reloadTenants(began, next, "")
	}})
}

// reloadTenants applies a setting of the tenants, or all settings if key is "". Tenants whose
// change needs a restart keep their settings.
func (s instances) reloadTenants(began, next config.Config, key string) error {
	if !slices.EqualFunc(began.Tenants, next.Tenants, samePlace) {
		return nil
	}
	for i, t := range next.Tenants {
		for _, setting := range s[i+1].reloadable() {
			if key != "" && setting.Key != key {
				continue
			}
			if err := setting.Apply(next.Of(t)); err != nil {
				return fmt.Errorf("%s of tenant %s: %w", setting.Key, t.Name, err)
			}
		}
	}
	return nil
}

func samePlace(a, b tenant.Config) bool {
	return a.Name == b.Name && a.Keyspace == b.Keyspace && a.MaxConnections == b.MaxConnections
}
