package server

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"varve/internal/stream"
)

// An httpListener accepts connections for net/http.
type httpListener struct {
	*stream.Listener
	metrics *metrics
	log     *slog.Logger
	shaken  chan *stream.Conn // that speak TLS now; nil if none is spoken, see shake
}

// firstPatience is how long a new connection has for its first request before it goes
// first; see [stream.Options].
const firstPatience = time.Second

func newHTTPListener(l net.Listener, name string, limit int, log *slog.Logger, m *metrics) *httpListener {
	h := &httpListener{metrics: m, log: log, Listener: stream.NewListener(l, stream.Options{
		Name: name, Limit: limit, Patience: firstPatience,
		Metrics: stream.Metrics{Open: m.connections, Evicted: func(c *stream.Conn, waitsFor string) {
			m.evicted.WithLabelValues(waitsFor).Inc()
			if waitsFor == stream.WaitsForBody {
				log.Warn("server.max_connections is reached, and no connection is idle; the server closed the one whose request body arrived most slowly, to accept a new one",
					"max_connections", limit, "client", c.RemoteAddr().String())
			}
		}},
	})}
	if d, ok := l.(*stream.Door); ok && d.TLS != nil {
		h.shaken = make(chan *stream.Conn)
	}
	return h
}

// Accept waits for a connection, then for room.
func (l *httpListener) Accept() (net.Conn, error) {
	if l.shaken != nil {
		return l.acceptShaken()
	}
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.connOf(nc.(*stream.Conn)), nil
}

func (l *httpListener) connOf(sc *stream.Conn) *httpConn {
	c := &httpConn{Conn: sc, metrics: l.metrics, heading: true}
	c.SetArrival(&c.arrival)
	return c
}

// note is net/http's hook for changes of a connection's state.
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
//
// net/http sends an answer of more than its buffer of 4 KiB in two pieces, the
// buffer and the rest, which wakes the client twice and costs as much as the
// smallest queries take. Between gather and letGo a first piece is held back
// until there is a second one, and both are sent at once.
type httpConn struct {
	*stream.Conn
	metrics   *metrics
	arrival   arrival
	gathering bool
	held      []byte

	// While heading, net/http reads the header of a request. Its goroutine for the
	// connection sets these, also those that note sets.
	heading bool
	lines   int // that were read since the header began
	size    int // bytes, likewise
	refused bool
	framing framing
}

func (c *httpConn) gather() { c.gathering = true }

// letGo sends what is still held back.
func (c *httpConn) letGo() error {
	c.gathering = false
	if len(c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.held)
	c.held = c.held[:0]
	return err
}

func (c *httpConn) Write(p []byte) (int, error) {
	switch {
	case len(c.held) > 0 && c.TLS() != nil: // in one record, if it fits
		first, both := len(c.held), append(c.held, p...)
		c.held, c.gathering = c.held[:0], false
		n, err := c.Conn.Write(both)
		return max(0, n-first), err
	case len(c.held) > 0:
		first := len(c.held)
		pieces := net.Buffers{c.held, p}
		n, err := pieces.WriteTo(c.Conn.Conn) // which can write both at once
		c.held, c.gathering = c.held[:0], false
		return max(0, int(n)-first), err
	case c.gathering && len(p) <= httpBuffer:
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// httpBuffer is how much net/http gathers before it writes to a connection.
const httpBuffer = 4 << 10

// connKey is the key of a request's httpConn in its context.
type connKey struct{}
