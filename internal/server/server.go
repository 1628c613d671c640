package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/gate"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/stream"
)

// A StreamServer speaks a protocol that is not HTTP. [stream.Server] is one.
type StreamServer interface {
	// Serve accepts from l until Shutdown, and then returns nil. When ctx ends, it closes all
	// connections at once.
	Serve(ctx context.Context, l net.Listener) error

	// Shutdown stops accepting, processes what has arrived and closes all connections; if ctx ends
	// first, it cuts them. No goroutine remains.
	Shutdown(ctx context.Context) error
}

// A DatagramServer speaks a protocol over UDP, as a StreamServer does over TCP.
type DatagramServer interface {
	// Serve processes datagrams until Shutdown. admit identifies the sender of a datagram; if it
	// returns an error, the datagram is dropped. With a nil admit, the context identifies the
	// sender.
	Serve(ctx context.Context, c *net.UDPConn, admit func(netip.Addr) (principal.Principal, error)) error
	Shutdown(ctx context.Context) error
}

// Options are what a Server is built from.
type Options struct {
	Config   Config
	Version  string
	Log      *slog.Logger
	Registry *prometheus.Registry // served at /internal/metrics

	// Keeper identifies senders. nil: everyone may do everything.
	Keeper *auth.Keeper

	// Opening describes the progress of opening the store, for example "40 %: reading the log".
	// With it the server answers 503 until Mount is called. Without it New mounts Front.
	Opening func() string
	Front
}

// A Front answers requests once the store is open.
type Front struct {
	Routes    []httpapi.Route         // of the front ends
	Streams   map[string]StreamServer // by name, such as "telnet"
	Datagrams map[string]DatagramServer
	Checks    []Check

	// Metrics are served at /internal/metrics beside those of Options.Registry.
	Metrics []prometheus.Gatherer

	// Audit records who did what. nil: nothing is recorded.
	Audit *audit.Log

	// Tenants reports whether a tenant is served. nil: the default only.
	Tenants func(name string) bool
}

// A Server is a set of listeners and what answers on them. Use it once: New, Listen, Run, and Mount
// during Run if it was made with Opening.
type Server struct {
	config   Config
	version  string
	log      *slog.Logger
	scrapes  http.Handler // the page of metrics
	metrics  *metrics
	opening  func() string
	front    Front         // complete before mounted is closed
	mounted  chan struct{} // closed by Mount
	drained  chan struct{} // closed when draining begins
	draining atomic.Bool
	origins  atomic.Pointer[origins]
	keyring  keyring
	keeper   *auth.Keeper
	audit    atomic.Pointer[audit.Log]

	handshakes *gate.Gate // those of TLS that compute now

	streams []*listening
	api     *web
	pprof   *web
	cancel  context.CancelFunc // of the context of all requests
}

// New prepares a server. Config must be valid.
func New(o Options) *Server {
	s := &Server{
		config:  o.Config,
		version: o.Version,
		log:     o.Log,
		metrics: newMetrics(o.Registry, o.Config.MaxConnections),
		opening: o.Opening,
		keeper:  o.Keeper,
		mounted: make(chan struct{}),
		drained: make(chan struct{}),

		handshakes: gate.New(int64(runtime.GOMAXPROCS(0))),
	}
	registerProcess(o.Registry, o.Version)
	registerHandshakes(o.Registry, s.handshakes)
	s.scrapes = newScraper(o.Registry, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return s.gather(o.Registry) }))
	o.Registry.MustRegister(newHealthGauge(s))
	s.SetAllowedOrigins(o.Config.AllowedOrigins)
	requests, cancel := context.WithCancel(httpapi.WithStopping(principal.With(context.Background(), principal.Everyone), s.drained))
	s.cancel = cancel
	s.api = s.newWeb(requests, "http", o.Config.MaxConnections, s.metrics)
	s.api.router.starting = http.HandlerFunc(s.answerStarting)
	s.pprof = s.newWeb(requests, "pprof", profilerConnections, newProfilerMetrics())
	s.pprof.router.mount(profiles()...)
	s.streams = o.Config.streams()
	if o.Opening == nil {
		s.Mount(o.Front)
	}
	return s
}

// Mount gives the server its front ends. It is called once.
func (s *Server) Mount(f Front) {
	s.front = f
	s.api.router.tenants = f.Tenants
	s.audit.Store(f.Audit)
	s.api.router.mount(append(s.ownRoutes(), f.Routes...)...)
	close(s.mounted)
}

// Routes lists all routes of the server once Mount was called, those of the profiler
// too.
func (s *Server) Routes() []httpapi.Route {
	<-s.mounted
	return slices.Concat(s.api.router.list, s.pprof.router.list)
}

// gather collects the metrics of the server and, once they are there, of its front ends.
func (s *Server) gather(own prometheus.Gatherer) ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{own}
	if s.isMounted() {
		all = append(all, s.front.Metrics...)
	}
	return all.Gather()
}

func (s *Server) isMounted() bool {
	select {
	case <-s.mounted:
		return true
	default:
		return false
	}
}

// SetAllowedOrigins replaces Config.AllowedOrigins, which must be valid.
func (s *Server) SetAllowedOrigins(list []string) {
	if o, err := newOrigins(list); err == nil {
		s.origins.Store(o)
	}
}

// Listen opens all listeners, so that clients may connect. After an error none
// is open.
func (s *Server) Listen() error {
	if s.config.TLS.on() {
		k, err := loadKeys(s.config.TLS)
		if err != nil {
			return err
		}
		s.useKeys(k)
	}
	var errs []error
	var without []*listening
	for _, st := range s.streams {
		if !s.wants(st) {
			continue
		}
		err := st.open()
		if errors.Is(err, syscall.EADDRINUSE) && st.optional {
			without = append(without, st)
			continue
		}
		if err != nil {
			wayOut := ""
			if errors.Is(err, syscall.EADDRINUSE) {
				wayOut = ", or stop what listens there"
			}
			errs = append(errs, fmt.Errorf("%w (set server.%s to another address%s)", err, st.key(), wayOut))
			continue
		}
		if s.keeper != nil {
			s.keeper.ShowMetrics(st.name)
		}
		if !st.datagrams {
			st.listener = s.door(st)
		}
		if w := s.webOf(st.name); w != nil {
			st.listener = w.bind(st.listener, st.name)
		}
	}
	errs = append(errs, s.exposed()...)
	if errs != nil {
		for _, st := range s.streams {
			if st.isOpen() {
				st.close()
			}
		}
		return errors.Join(errs...)
	}
	for _, st := range without {
		s.log.Warn("another program listens at this address, so the server starts without this listener; set server."+st.key()+" to another address, or leave it empty",
			"listener", st.name, "address", st.addr)
	}
	s.tellExposure()
	return nil
}

// exposed refuses listeners that other machines can reach while authentication is off.
func (s *Server) exposed() (errs []error) {
	if s.keeper != nil || s.config.Insecure {
		return nil
	}
	for _, st := range s.streams {
		if st.isOpen() && !onLoopback(st.local()) {
			errs = append(errs, fmt.Errorf("the %s listener at %s can be reached from other machines, and anyone there could %s, because authentication is off. "+
				"Set server.%s to a loopback address, such as 127.0.0.1:%d; or auth.enabled: true and create tokens with varve token create; "+
				"or, if only trusted machines reach it, server.insecure: true", st.name, st.shown(), st.can, st.key(), portOf(st.local())))
		}
	}
	return errs
}

// tellExposure logs which listeners other machines can reach without authentication, or with tokens
// that others on the network can read.
func (s *Server) tellExposure() {
	for _, st := range s.streams {
		switch {
		case !st.isOpen() || onLoopback(st.local()):
		case s.keeper == nil:
			s.log.Warn("server.insecure is set: this listener is reachable from other machines, and anyone who reaches it can "+st.can,
				"listener", st.name, "address", st.shown())
		case s.webOf(st.name) != nil && !s.config.TLS.Speaks(st.name):
			s.log.Warn("this listener is reachable from other machines without TLS, so others on the network can read tokens; set server.tls.cert_file, or put a proxy that speaks TLS in front",
				"listener", st.name, "address", st.shown())
		}
	}
}

// insecure reports whether other machines can reach the server without authentication.
func (s *Server) insecure() bool {
	return s.keeper == nil && s.config.Insecure && slices.ContainsFunc(s.streams, func(st *listening) bool { return st.isOpen() && !onLoopback(st.local()) })
}

// door returns the listener of a stream with the checks that connections must pass.
func (s *Server) door(st *listening) net.Listener {
	d := &stream.Door{Listener: st.listener}
	if s.config.TLS.Speaks(st.name) {
		for _, reason := range stream.HandshakeFaults {
			s.metrics.handshakes.WithLabelValues(st.name, reason) // shown from the start
		}
		d.TLS = &stream.TLS{
			Config:  func() *tls.Config { return s.keyring.of(st.name) },
			Timeout: s.config.ReadHeaderTimeout,
			Turns:   s.handshakes,
			Failed:  s.metrics.handshakes,
		}
	}
	if s.keeper != nil && s.webOf(st.name) == nil {
		d.Admit = s.admitLine(st.name)
	}
	return d
}

// Addr returns where a stream listens, by its name, such as "http". It is "" for one
// that is off.
func (s *Server) Addr(name string) string {
	for _, st := range s.streams {
		if st.name == name && st.isOpen() {
			return st.local().String()
		}
	}
	return ""
}

// Run serves until ctx is done, then drains, and returns nil. It returns early with an error if a
// listener fails. When it returns, no goroutine of the server is left, and the front ends may be
// closed.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, len(s.streams))
	var serving sync.WaitGroup
	for _, st := range s.streams {
		if !st.isOpen() {
			continue
		}
		serving.Go(func() {
			if err := s.serve(st); err != nil && !s.draining.Load() {
				failed <- fmt.Errorf("%s listener on %s failed: %w", st.name, st.shown(), err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
		// From the next line of the log on, answers announce the end of their connections.
		s.draining.Store(true)
		if s.isMounted() { // otherwise the start failed
			s.log.Info("stopping: refusing new connections, completing requests in flight", "at_most", s.config.ShutdownTimeout)
		}
	case err = <-failed:
	}
	s.drain()
	serving.Wait()
	return err
}

// serve serves one stream until the server stops.
func (s *Server) serve(st *listening) error {
	if w := s.webOf(st.name); w != nil {
		return w.serve()
	}
	// Until the store is open, connections and what they have sent wait in the operating system.
	select {
	case <-s.mounted:
	case <-s.drained:
		return st.close()
	}
	ctx := principal.With(context.Background(), principal.Everyone) // Shutdown ends Serve
	switch speaker := s.speaker(st).(type) {
	case StreamServer:
		return speaker.Serve(ctx, st.listener)
	case DatagramServer:
		return speaker.Serve(ctx, st.packets, s.admitDatagram(st.name))
	}
	return st.close()
}

// drain stops all listeners; see the package comment for the order.
func (s *Server) drain() {
	s.draining.Store(true)
	close(s.drained)
	s.api.listener.Close()
	s.pprof.close()
	ctx, cancel := context.WithTimeout(context.Background(), s.config.ShutdownTimeout/2)
	defer cancel()
	var streams sync.WaitGroup
	for _, st := range s.streams {
		speaker := s.speaker(st)
		if !st.isOpen() || speaker == nil {
			continue
		}
		streams.Go(func() {
			if err := speaker.Shutdown(ctx); err != nil {
				s.log.Warn(st.name+": closed connections that did not finish within the shutdown timeout", "error", err)
			}
		})
	}
	s.drainHTTP(ctx)
	streams.Wait()
}

// speaker returns what serves a stream other than HTTP, nil if there is nothing yet.
func (s *Server) speaker(st *listening) interface{ Shutdown(context.Context) error } {
	if !s.isMounted() {
		return nil
	}
	if st.datagrams {
		return s.front.Datagrams[st.name]
	}
	return s.front.Streams[st.name]
}

// cutWait is how long cancelled requests have to notice.
const cutWait = time.Second

func (s *Server) drainHTTP(ctx context.Context) {
	gone := s.api.listener.Drained()
	select {
	case <-gone:
	case <-time.After(s.config.CloseGrace):
	case <-ctx.Done():
	}
	if err := s.api.shutdown(ctx); err != nil {
		s.log.Warn("cancelling requests that did not finish within the shutdown timeout", "error", err)
	}
	s.cancel() // ends the queries of what is still there
	s.api.close()
	<-gone
	select {
	case <-s.api.router.active.None():
	case <-time.After(cutWait):
		s.log.Error("cancelled requests are still running; this is a bug in Varve, please report it")
	}
}
