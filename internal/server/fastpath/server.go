package fastpath

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/stream"
)

// Options are what a Server is built from.
type Options struct {
	Handler http.Handler
	Log     *slog.Logger

	FirstTimeout time.Duration // how long a new connection has for its first byte
	IdleTimeout  time.Duration // how long a connection may wait for its next request
}

// A Server answers plain requests on connections that it is given.
type Server struct {
	o        Options
	serving  stream.Activity
	watching atomic.Bool // look will run
	closing  atomic.Bool // is set under mu

	mu struct {
		sync.Mutex
		lanes   map[*lane]struct{}
		watches map[*watch]struct{} // of requests on connections that were handed over
	}
}

// New returns a Server.
func New(o Options) *Server {
	s := &Server{o: o}
	s.mu.lanes, s.mu.watches = map[*lane]struct{}{}, map[*watch]struct{}{}
	return s
}

// Serve answers the plain requests of c, in order, each with a context below ctx. At the first
// request that is not plain it returns the unused bytes that it has read, and true: c is still
// open, and net/http can continue from there. Otherwise the connection has ended, and the caller
// closes it.
func (s *Server) Serve(ctx context.Context, c *stream.Conn) (unused []byte, handOver bool) {
	l := newLane(s, c)
	if !s.enter(l) {
		return nil, false
	}
	defer s.leave(l)
	return l.serve(ctx)
}

func (s *Server) enter(l *lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	s.mu.lanes[l] = struct{}{}
	s.serving.Begin()
	return true
}

func (s *Server) leave(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.lanes, l)
	s.serving.End()
}

// Shutdown ends connections that have no request, and the others once theirs is
// answered. It returns when no connection is left, or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, l := range s.close() {
		l.endIdle()
	}
	select {
	case <-s.serving.None():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes all connections at once.
func (s *Server) Close() {
	for _, l := range s.close() {
		l.conn.Conn.Close() // below TLS, which would wait for the client
		l.conn.Close()
	}
}

// close begins the end, and returns the connections that are left.
func (s *Server) close() []*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	return slices.Collect(maps.Keys(s.mu.lanes))
}
