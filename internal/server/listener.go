package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"varve/internal/stream"
)

// An httpListener accepts connections, and hands some to net/http: all HTTP/2 connections, and
// those on which [fastpath] finds something that it does not serve.
type httpListener struct {
	*stream.Listener
	metrics *metrics
	log     *slog.Logger
	prepare func(context.Context, *stream.Conn) net.Conn // returns the connection for net/http to continue with, nil if there is none
	ready   handover
	pace    *stream.Pace // of those that speak HTTP/2
}

// A handover is the listener of net/http. It stays open after the server stops accepting
// connections: an open one may still pass to net/http.
type handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func newHandover(addr net.Addr) handover {
	return handover{conns: make(chan net.Conn), closed: make(chan struct{}), addr: addr}
}

// Accept waits for a connection that is for net/http.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close is called by net/http when it stops.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr is the address that the connections were accepted at.
func (h *handover) Addr() net.Addr { return h.addr }

// deliver passes c to net/http, or closes c if net/http has stopped.
func (h *handover) deliver(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		c.Close()
	}
}

// firstPatience is how long a new connection may wait before its first request; after that it is
// the first to be closed, see [stream.Options].
const firstPatience = time.Second

func newHTTPListener(l net.Listener, name string, limit int, log *slog.Logger, m *metrics) *httpListener {
	h := &httpListener{metrics: m, log: log, ready: newHandover(l.Addr()), Listener: stream.NewListener(l, stream.Options{
		Name: name, Limit: limit, Patience: firstPatience,
		Metrics: stream.Metrics{Open: m.connections, Failed: m.acceptFailures, Evicted: func(c *stream.Conn, waitsFor string) {
			m.evicted.WithLabelValues(waitsFor).Inc()
			if waitsFor == stream.WaitsForBody {
				log.Warn("server.max_connections is reached, and no connection is idle; the server closed the one whose request body arrived most slowly, to accept a new one",
					"max_connections", limit, "client", c.RemoteAddr().String())
			}
		}},
	})}
	return h
}

// feed accepts connections. Each has its own place and goroutine, so that a slow one holds up no
// other. The connections count towards the limit, and drainHTTP ends them; feed does not wait for
// their goroutines, because a handler that never ends must not keep the server from stopping. feed
// returns when the listener is closed.
func (l *httpListener) feed() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		c, err := l.AcceptConn(ctx, l.log)
		if err != nil {
			return
		}
		go func() {
			if next := l.prepare(ctx, c); next != nil {
				l.ready.deliver(next)
				return
			}
			c.Close()
		}()
	}
}

func (l *httpListener) connOf(sc *stream.Conn) *httpConn {
	c := &httpConn{Conn: sc, metrics: l.metrics, heading: true}
	c.SetArrival(&c.arrival)
	return c
}

// note does the part of [crowd.note] that concerns the connection itself.
func note(nc net.Conn, state http.ConnState) {
	if state == http.StateNew {
		return
	}
	c, ok := nc.(*httpConn)
	if !ok {
		noteHTTP2(stream.Of(nc), state)
		return
	}
	if c.heading = state == http.StateIdle; c.heading {
		c.lines, c.size = 0, 0
		c.Idle()
	} else {
		c.Busy()
	}
}

// An httpConn is a connection of net/http.
type httpConn struct {
	*stream.Conn
	metrics *metrics
	arrival arrival
	unused  []byte // read before net/http got the connection

	// watch is [fastpath.Server.Watch], set once net/http has the connection.
	watch func(c *stream.Conn, taken func() bool, cancel context.CancelFunc) (stop func())

	// While heading is set, net/http reads the header of a request. The connection's goroutine in
	// net/http sets these fields, including those that note sets.
	heading bool
	lines   int // that were read since the header began
	size    int // bytes, likewise
	refused bool
	framing framing
}

// connKey is the key of a request's httpConn in its context.
type connKey struct{}
