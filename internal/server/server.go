package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/httpapi"
)

// A StreamServer speaks a protocol on plain TCP connections.
type StreamServer interface {
	// Serve accepts from l until Shutdown, and returns nil then. It closes all
	// connections at once when ctx ends.
	Serve(ctx context.Context, l net.Listener) error

	// Shutdown stops accepting, uses what has arrived and closes all
	// connections; when ctx ends first, it cuts them. No goroutine is left.
	Shutdown(ctx context.Context) error
}

// Options are what a Server is built from.
type Options struct {
	Config   Config
	Version  string
	Log      *slog.Logger
	Registry *prometheus.Registry // served at /internal/metrics
	Routes   []httpapi.Route      // of the front ends
	Telnet   StreamServer         // may be nil
	Checks   []Check
}

// A Server is listeners and what answers on them. Use it once: New, Listen,
// Run.
type Server struct {
	config   Config
	version  string
	log      *slog.Logger
	registry *prometheus.Registry
	metrics  *metrics
	checks   []Check
	telnet   StreamServer
	draining atomic.Bool

	http   *http.Server
	router *router
	cancel context.CancelFunc // of the context of all requests
	pprof  *http.Server

	httpListener   *boundedListener
	telnetListener net.Listener // nil if off
	pprofListener  net.Listener // nil if off
}

// New prepares a server. Config must be valid.
func New(o Options) *Server {
	s := &Server{
		config:   o.Config,
		version:  o.Version,
		log:      o.Log,
		registry: o.Registry,
		metrics:  newMetrics(o.Registry, o.Version, o.Config.MaxConnections),
		checks:   o.Checks,
		telnet:   o.Telnet,
	}
	s.router = &router{
		mux:      http.NewServeMux(),
		log:      o.Log,
		metrics:  s.metrics,
		stall:    o.Config.StallTimeout,
		draining: s.draining.Load,
	}
	for _, r := range s.ownRoutes() {
		s.router.handle(r)
	}
	for _, r := range o.Routes {
		s.router.handle(r)
	}
	s.http = s.newHTTP(s.router)
	s.pprof = s.newHTTP(profiles())
	requests, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.http.ConnContext = withConn
	s.http.BaseContext = func(net.Listener) context.Context { return requests }
	return s
}

func (s *Server) newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.config.ReadHeaderTimeout,
		IdleTimeout:       s.config.IdleTimeout,
		MaxHeaderBytes:    int(s.config.MaxHeader),
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
}

// Listen opens all listeners, so that clients may connect. After an error none
// is open.
func (s *Server) Listen() error {
	var errs []error
	listen := func(key, addr string) net.Listener {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w (set server.%s to another address, or stop what listens there)", err, key))
		}
		return l
	}
	if l := listen("http_addr", s.config.HTTPAddr); l != nil {
		s.httpListener = newBoundedListener(l, s.config.MaxConnections, s.metrics.connections)
	}
	if s.telnet != nil && s.config.TelnetAddr != "" {
		s.telnetListener = listen("telnet_addr", s.config.TelnetAddr)
	}
	if s.config.PprofAddr != "" {
		s.pprofListener = listen("pprof_addr", s.config.PprofAddr)
	}
	if errs != nil {
		s.closeListeners()
	}
	return errors.Join(errs...)
}

func (s *Server) closeListeners() {
	if s.httpListener != nil {
		s.httpListener.Close()
	}
	for _, l := range []net.Listener{s.telnetListener, s.pprofListener} {
		if l != nil {
			l.Close()
		}
	}
}

// Addr returns where a listener is: "http", "telnet" or "pprof". It is "" for
// one that is off.
func (s *Server) Addr(name string) string {
	listeners := map[string]net.Listener{"telnet": s.telnetListener, "pprof": s.pprofListener}
	if s.httpListener != nil {
		listeners["http"] = s.httpListener
	}
	if l := listeners[name]; l != nil {
		return l.Addr().String()
	}
	return ""
}

// Run serves until ctx is done, then drains, and returns nil. It returns early
// with an error if a listener fails. When it returns nothing of the server
// runs any more, and the front ends may be closed.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 3)
	var serving sync.WaitGroup
	serve := func(name string, l net.Listener, f func(net.Listener) error) {
		serving.Go(func() {
			if err := f(l); err != nil && !s.draining.Load() {
				failed <- fmt.Errorf("%s listener on %s failed: %w", name, l.Addr(), err)
			}
		})
	}
	serve("http", s.httpListener, s.http.Serve)
	if s.telnetListener != nil {
		serve("telnet", s.telnetListener, func(l net.Listener) error {
			return s.telnet.Serve(context.Background(), l) // Shutdown ends it
		})
	}
	if s.pprofListener != nil {
		serve("pprof", s.pprofListener, s.pprof.Serve)
	}
	var err error
	select {
	case <-ctx.Done():
		s.log.Info("stopping: no new connections, requests in flight are completed", "at_most", s.config.ShutdownTimeout)
	case err = <-failed:
	}
	s.drain()
	serving.Wait()
	return err
}

// drain stops all listeners; see the package comment for the order.
func (s *Server) drain() {
	s.draining.Store(true)
	s.httpListener.Close()
	s.pprof.Close()
	ctx, cancel := context.WithTimeout(context.Background(), s.config.ShutdownTimeout/2)
	defer cancel()
	var streams sync.WaitGroup
	if s.telnetListener != nil {
		streams.Go(func() {
			if err := s.telnet.Shutdown(ctx); err != nil {
				s.log.Warn("telnet connections were cut", "error", err)
			}
		})
	}
	s.drainHTTP(ctx)
	streams.Wait()
}

// cutWait is how long requests that were cut may take to notice.
const cutWait = time.Second

func (s *Server) drainHTTP(ctx context.Context) {
	gone := s.httpListener.drained()
	select {
	case <-gone:
	case <-time.After(s.config.CloseGrace):
	}
	if err := s.http.Shutdown(ctx); err != nil {
		s.log.Warn("requests in flight are cut", "error", err)
	}
	s.cancel() // ends the queries of what is still there
	s.http.Close()
	<-gone
	select {
	case <-s.router.active.none():
	case <-time.After(cutWait):
		s.log.Error("requests go on although they were cut; this is a fault of Varve, please report it")
	}
}
