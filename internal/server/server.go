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
	"syscall"
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

	// Opening says how far the opening of the store is, for example "40 %:
	// reading the log". With it the server answers 503 until Mount is called.
	// Without it New mounts Front.
	Opening func() string
	Front
}

// A Front answers requests once the store is open.
type Front struct {
	Routes []httpapi.Route // of the front ends
	Telnet StreamServer    // may be nil
	Checks []Check
}

// A Server is listeners and what answers on them. Use it once: New, Listen,
// Run, and Mount while it runs if it was made with Opening.
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

	http     *http.Server
	router   *router
	cancel   context.CancelFunc // of the context of all requests
	pprof    *http.Server
	profiler *router

	httpListener   *boundedListener
	telnetListener net.Listener     // nil if off
	pprofListener  *boundedListener // nil if off
}

// New prepares a server. Config must be valid.
func New(o Options) *Server {
	s := &Server{
		config:  o.Config,
		version: o.Version,
		log:     o.Log,
		scrapes: newScraper(o.Registry),
		metrics: newMetrics(o.Registry, o.Version, o.Config.MaxConnections),
		opening: o.Opening,
		mounted: make(chan struct{}),
		drained: make(chan struct{}),
	}
	o.Registry.MustRegister(newHealthGauge(s))
	s.SetAllowedOrigins(o.Config.AllowedOrigins)
	s.router, s.profiler = s.newRouter(s.metrics), s.newRouter(newProfilerMetrics())
	s.router.starting = http.HandlerFunc(s.answerStarting)
	s.profiler.mount(profiles()...)
	s.http, s.pprof = s.newHTTP(s.router), s.newHTTP(s.profiler)
	requests, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, h := range []*http.Server{s.http, s.pprof} {
		h.ConnContext = withConn
		h.BaseContext = func(net.Listener) context.Context { return requests }
	}
	if o.Opening == nil {
		s.Mount(o.Front)
	}
	return s
}

// Mount gives the server its front ends. It is called once.
func (s *Server) Mount(f Front) {
	s.front = f
	s.router.mount(append(s.ownRoutes(), f.Routes...)...)
	close(s.mounted)
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

func (s *Server) newRouter(m *metrics) *router {
	return &router{
		guard:    guard{origins: &s.origins},
		log:      s.log,
		metrics:  m,
		stall:    s.config.StallTimeout,
		draining: s.draining.Load,
	}
}

func (s *Server) newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.config.ReadHeaderTimeout,
		IdleTimeout:       s.config.IdleTimeout,
		MaxHeaderBytes:    2 * int(maxHeader), // boundedConn.Read is stricter, and counts
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
			wayOut := ""
			if errors.Is(err, syscall.EADDRINUSE) {
				wayOut = ", or stop what listens there"
			}
			errs = append(errs, fmt.Errorf("%w (set server.%s to another address%s)", err, key, wayOut))
		}
		return l
	}
	if l := listen("http_addr", s.config.HTTPAddr); l != nil {
		s.httpListener = newBoundedListener(l, s.config.MaxConnections, s.log, s.metrics)
		s.http.ConnState = s.httpListener.note
		s.router.guard.loopback = onLoopback(l)
	}
	if s.config.TelnetAddr != "" && (s.front.Telnet != nil || s.opening != nil) {
		s.telnetListener = listen("telnet_addr", s.config.TelnetAddr)
	}
	if s.config.PprofAddr != "" {
		if l := listen("pprof_addr", s.config.PprofAddr); l != nil {
			s.pprofListener = newBoundedListener(l, profilerConnections, s.log, s.profiler.metrics)
			s.pprof.ConnState = s.pprofListener.note
			s.profiler.guard.loopback = onLoopback(l)
		}
	}
	if errs != nil {
		s.closeListeners()
		return errors.Join(errs...)
	}
	s.warnOfExposure()
	return nil
}

func onLoopback(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// warnOfExposure logs which listeners other machines can reach: there is no
// authentication.
func (s *Server) warnOfExposure() {
	for _, l := range []struct{ key, name, can string }{
		{"http_addr", "http", "read, write and delete all data"},
		{"telnet_addr", "telnet", "write"},
		{"pprof_addr", "pprof", "read parts of the server's memory and slow it down"},
	} {
		listener := s.listener(l.name)
		if listener == nil || onLoopback(listener) {
			continue
		}
		s.log.Warn("this listener is reachable from other machines, and there is no authentication: anyone who reaches it can "+l.can+
			"; set server."+l.key+" to an address that only trusted machines reach, or put a firewall or an authenticating proxy in front",
			"listener", l.name, "address", listener.Addr().String())
	}
}

func (s *Server) closeListeners() {
	for _, name := range listenerNames {
		if l := s.listener(name); l != nil {
			l.Close()
		}
	}
}

var listenerNames = []string{"http", "telnet", "pprof"}

// listener returns an open listener by its name, nil if it is off.
func (s *Server) listener(name string) net.Listener {
	switch {
	case name == "http" && s.httpListener != nil:
		return s.httpListener
	case name == "telnet" && s.telnetListener != nil:
		return s.telnetListener
	case name == "pprof" && s.pprofListener != nil:
		return s.pprofListener
	}
	return nil
}

// Addr returns where a listener is: "http", "telnet" or "pprof". It is "" for
// one that is off.
func (s *Server) Addr(name string) string {
	if l := s.listener(name); l != nil {
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
		serve("telnet", s.telnetListener, s.serveTelnet)
	}
	if s.pprofListener != nil {
		serve("pprof", s.pprofListener, s.pprof.Serve)
	}
	var err error
	select {
	case <-ctx.Done():
		if s.isMounted() { // else the start has failed
			s.log.Info("stopping: no new connections, requests in flight are completed", "at_most", s.config.ShutdownTimeout)
		}
	case err = <-failed:
	}
	s.drain()
	serving.Wait()
	return err
}

// serveTelnet begins to accept once the store is open. Until then connections
// wait with the operating system, with what they have sent.
func (s *Server) serveTelnet(l net.Listener) error {
	select {
	case <-s.mounted:
	case <-s.drained:
		return l.Close()
	}
	if s.front.Telnet == nil {
		return l.Close()
	}
	return s.front.Telnet.Serve(context.Background(), l) // Shutdown ends it
}

// drain stops all listeners; see the package comment for the order.
func (s *Server) drain() {
	s.draining.Store(true)
	close(s.drained)
	s.httpListener.Close()
	s.pprof.Close()
	ctx, cancel := context.WithTimeout(context.Background(), s.config.ShutdownTimeout/2)
	defer cancel()
	var streams sync.WaitGroup
	if s.telnetListener != nil && s.isMounted() && s.front.Telnet != nil {
		streams.Go(func() {
			if err := s.front.Telnet.Shutdown(ctx); err != nil {
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
