package stream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"varve/internal/work"
)

// A Handler speaks a protocol on a connection.
type Handler interface {
	// ServeConn reads c until its end, or until Read fails because the server stops, and
	// processes what it has read. It returns soon after the end of ctx. The server closes c.
	ServeConn(ctx context.Context, c *Conn)
}

// A Server runs a Handler on each connection. Serve owns all goroutines.
type Server struct {
	o       Options
	handler Handler
	log     *slog.Logger

	mu struct {
		sync.Mutex
		listeners map[net.Listener]struct{}
		conns     map[*Conn]context.CancelFunc
		stopping  bool
		deadline  time.Time // of the drain, when stopping
		cut       bool      // the context of Shutdown has ended
	}
	serving sync.WaitGroup // one per Serve
}

// NewServer returns a Server. Its connections are drained when they are evicted and when
// the server stops. A nil log means that nothing is logged.
func NewServer(o Options, h Handler, log *slog.Logger) *Server {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	o.Drain = true
	s := &Server{o: o, handler: h, log: log}
	s.mu.listeners = map[net.Listener]struct{}{}
	s.mu.conns = map[*Conn]context.CancelFunc{}
	return s
}

// Handler returns the handler of all connections.
func (s *Server) Handler() Handler { return s.handler }

// SetHandler replaces the handler. Call it before Serve.
func (s *Server) SetHandler(h Handler) { s.handler = h }

// Serve accepts connections from ln until Shutdown, or until ctx ends, and
// returns when all of them are closed. The end of ctx closes connections at
// once; Shutdown drains them. Serve closes ln. It returns nil after Shutdown,
// otherwise ctx's error if ctx has ended, otherwise why accepting failed.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if !s.enter(ln) {
		return ln.Close()
	}
	defer s.serving.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bounded := NewListener(ln, s.o)
	stop := context.AfterFunc(ctx, func() { s.closeAll(bounded) })
	defer stop()

	var conns sync.WaitGroup
	err := s.accept(ctx, bounded, &conns)
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

func (s *Server) accept(ctx context.Context, ln *Listener, conns *sync.WaitGroup) error {
	defer ln.Close()
	for {
		c, err := ln.AcceptConn(ctx, s.log)
		if err != nil {
			return err
		}
		own, cancel := context.WithCancel(ctx)
		s.register(ctx, c, cancel)
		conns.Go(func() {
			defer s.unregister(c, cancel)
			// A panic ends only this connection.
			_ = work.Do("serve a "+s.o.Name+" connection", func() error { return s.serveConn(own, c) })
		})
	}
}

// serveConn serves one connection, after the handshake and admission.
func (s *Server) serveConn(ctx context.Context, c *Conn) error {
	if err := c.Handshake(ctx); err != nil {
		s.log.Debug(s.o.Name+": TLS handshake failed; connection closed", "remote", c.RemoteAddr().String(), "error", err)
		return nil // it is counted
	}
	if admit := c.listener.o.admit; admit != nil {
		admitted, err := admit(ctx, c)
		if err != nil {
			s.log.Debug(s.o.Name+": connection refused", "remote", c.RemoteAddr().String(), "error", err)
			return nil // it is counted
		}
		ctx = admitted
	}
	s.handler.ServeConn(ctx, c)
	return nil
}

// register records an accepted connection, for Shutdown and closeAll. It closes a connection
// that arrives after they have begun: as they close connections, waiting connections take the
// free places.
func (s *Server) register(ctx context.Context, c *Conn, cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.conns[c] = cancel
	switch {
	case s.mu.cut || ctx.Err() != nil:
		cancel()
		c.Conn.Close()
	case s.mu.stopping:
		c.drain(s.mu.deadline)
	}
}

func (s *Server) unregister(c *Conn, cancel context.CancelFunc) {
	c.Close()
	cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
}

func (s *Server) closeAll(ln net.Listener) {
	ln.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		c.Conn.Close()
	}
}

// Shutdown stops accepting, lets the handlers process what the connections have
// received, closes the connections and returns once Serve is done. If ctx ends
// first, the connections are closed at once and ctx's error is returned.
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
		c.drain(deadline)
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() { // ends with Serve: at the latest after the connections are closed below
		s.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.mu.cut = true
	for c, cancel := range s.mu.conns {
		cancel()
		c.Conn.Close()
	}
	s.mu.Unlock()
	<-done
	return fmt.Errorf("stop the %s listener: %w", s.o.Name, ctx.Err())
}

// stopAccepting ends the accept loop. For TCP it first lets Serve accept the
// connections in the kernel's queue: their clients may have sent something.
func stopAccepting(ln net.Listener) {
	if d, ok := ln.(interface{ SetDeadline(time.Time) error }); ok && d.SetDeadline(time.Now().Add(drainIdle)) == nil {
		return
	}
	ln.Close()
}

// drainMax bounds how long a connection that never falls silent is read after
// Shutdown. It is at most half of the time that Shutdown has.
const drainMax = 2 * time.Second
