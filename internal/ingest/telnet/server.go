package telnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/work"
)

// Options are what a Server needs beside its configuration.
type Options struct {
	Registerer prometheus.Registerer // required
	Logger     *slog.Logger          // nil: nothing is logged
	Version    string                // answer to the version command, without line end
}

// A Server takes lines from TCP connections. Serve owns all goroutines.
type Server struct {
	p       *ingest.Pipeline
	cfg     Config
	log     *slog.Logger
	version []byte
	proto   *ingest.Protocol

	accepted, refused, evicted, received, unread prometheus.Counter

	mu struct {
		sync.Mutex
		listeners map[net.Listener]struct{}
		conns     map[*conn]struct{}
		leaving   int // of conns: evicted and not closed yet
		stopping  bool
		deadline  time.Time // of the drain, when stopping
	}
	serving sync.WaitGroup // one per Serve and per connection
}

// NewServer makes a Server. cfg must be valid.
func NewServer(p *ingest.Pipeline, cfg Config, o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		o.Registerer.MustRegister(c)
		return c
	}
	s := &Server{
		p: p, cfg: cfg, log: o.Logger, version: []byte(o.Version + "\n"), proto: p.Protocol("telnet"),
		accepted: counter("varve_telnet_connections_total", "Connections accepted."),
		refused:  counter("varve_telnet_connections_refused_total", "Connections closed at once because of telnet.max_connections, while all others were storing lines."),
		evicted:  counter("varve_telnet_connections_evicted_total", "Connections closed to make room for new ones (telnet.max_connections): those that had brought no line for longest."),
		received: counter("varve_telnet_received_bytes_total", "Bytes read from connections."),
		unread:   counter("varve_telnet_replies_dropped_total", "Replies to version that a client did not read in time."),
	}
	s.mu.listeners = map[net.Listener]struct{}{}
	s.mu.conns = map[*conn]struct{}{}
	o.Registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "varve_telnet_connections", Help: "Open connections; at most max_connections.",
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.mu.conns))
	}))
	return s
}

// Serve takes connections from ln until Shutdown, or until ctx ends, and
// returns when all connections that it took are closed. The end of ctx closes
// connections at once; Shutdown lets them finish. Serve closes ln. It returns
// nil after Shutdown, ctx's error after that, else why accepting failed.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if !s.enter(ln) {
		return ln.Close()
	}
	defer s.serving.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.closeAll(ln) })
	defer stop()

	var conns sync.WaitGroup
	err := s.accept(ctx, ln, &conns)
	conns.Wait()
	s.mu.Lock()
	delete(s.mu.listeners, ln)
	stopping := s.mu.stopping
	s.mu.Unlock()
	switch {
	case stopping:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

func (s *Server) enter(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping {
		return false
	}
	s.serving.Add(1)
	s.mu.listeners[ln] = struct{}{}
	return true
}

// acceptPause is how long accepting rests after a failure that may pass, such
// as too many open files.
const acceptPause = 50 * time.Millisecond

func (s *Server) accept(ctx context.Context, ln net.Listener, conns *sync.WaitGroup) error {
	defer ln.Close()
	for {
		nc, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
				return err
			}
			s.log.Warn("telnet: accept failed, trying again", "address", ln.Addr(), "error", err)
			select {
			case <-ctx.Done():
				return err
			case <-time.After(acceptPause):
			}
			continue
		}
		c := newConn(s, nc)
		if !s.register(c) {
			nc.Close()
			continue
		}
		s.accepted.Inc()
		conns.Go(func() {
			defer s.unregister(c)
			// A fault of Varve ends this connection alone: run closes it.
			_ = work.Do("serve a telnet connection", func() error { c.run(ctx); return nil })
		})
	}
}

// register adds c. At max_connections it evicts the connection that has sent no line
// for longest, which is closed once its lines are stored. If all others are storing
// lines, c is refused.
func (s *Server) register(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.conns)-s.mu.leaving >= s.cfg.MaxConnections && !s.evictLocked() {
		s.refused.Inc()
		return false
	}
	s.mu.conns[c] = struct{}{}
	if s.mu.stopping {
		c.drain()
	}
	return true
}

// maxLeaving bounds how many evicted connections are still open.
const maxLeaving = 64

// evictLocked ends the connection that has sent no line for longest. It scans all
// connections, which takes some microseconds per thousand, for a connection beyond
// the limit only. s.mu must be held.
func (s *Server) evictLocked() bool {
	if s.mu.leaving >= maxLeaving {
		return false
	}
	var longest *conn
	var since int64
	for c := range s.mu.conns {
		at := c.lastLine.Load()
		if !c.leaving && !c.storing.Load() && (longest == nil || at < since) {
			longest, since = c, at
		}
	}
	if longest == nil {
		return false
	}
	longest.leaving = true
	s.mu.leaving++
	s.evicted.Inc()
	longest.drain()
	return true
}

func (s *Server) unregister(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	if c.leaving {
		s.mu.leaving--
	}
}

func (s *Server) closeAll(ln net.Listener) {
	ln.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		c.nc.Close()
	}
}

// Shutdown stops accepting, stores what the connections have received, closes
// them and returns once Serve has nothing left to do. If ctx ends first, the
// connections are closed as they are and ctx's error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	deadline := time.Now().Add(drainMax)
	if end, ok := ctx.Deadline(); ok && time.Until(end)/2 < drainMax {
		deadline = time.Now().Add(time.Until(end) / 2)
	}
	s.mu.Lock()
	s.mu.stopping = true
	s.mu.deadline = deadline
	for ln := range s.mu.listeners {
		stopAccepting(ln)
	}
	for c := range s.mu.conns {
		c.drain()
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() { // ends with Serve, which the closes below make return
		s.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.mu.conns {
		c.abort()
	}
	s.mu.Unlock()
	<-done
	return fmt.Errorf("stop the telnet listener: %w", ctx.Err())
}

// stopAccepting ends the accept loop, for TCP only after the connections that
// the kernel has taken already: their clients may have sent lines.
func stopAccepting(ln net.Listener) {
	if d, ok := ln.(interface{ SetDeadline(time.Time) error }); ok && d.SetDeadline(time.Now().Add(drainIdle)) == nil {
		return
	}
	ln.Close()
}

// drainMax bounds how long a connection that never falls silent is read after
// Shutdown. It is at most half of the time that Shutdown has.
const drainMax = 2 * time.Second
