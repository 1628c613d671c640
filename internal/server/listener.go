package server

import (
	"context"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A boundedListener accepts at most so many connections at a time; further
// ones wait with the operating system.
type boundedListener struct {
	net.Listener
	slots  chan struct{} // one element for each open connection, and for Accept
	closed chan struct{}
	once   sync.Once
	open   activity // one for each open connection
	gauge  prometheus.Gauge
}

func newBoundedListener(l net.Listener, limit int, gauge prometheus.Gauge) *boundedListener {
	return &boundedListener{
		Listener: l,
		slots:    make(chan struct{}, limit),
		closed:   make(chan struct{}),
		gauge:    gauge,
	}
}

// Accept waits for a slot, then for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	l.open.begin()
	l.gauge.Inc()
	return &boundedConn{Conn: c, listener: l}, nil
}

// Close stops accepting. Open connections stay open.
func (l *boundedListener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// drained returns a channel that is closed once the last connection is. It
// is of use after Close.
func (l *boundedListener) drained() <-chan struct{} { return l.open.none() }

// A boundedConn gives its slot back when it is closed.
//
// net/http sends an answer of more than its buffer of 4 KiB in two pieces, the
// buffer and the rest, which wakes the client twice and costs as much as the
// smallest queries take. Between gather and letGo a first piece is held back
// until there is a second one, and both are sent at once.
type boundedConn struct {
	net.Conn
	listener  *boundedListener
	once      sync.Once
	gathering bool
	held      []byte
}

func (c *boundedConn) gather() { c.gathering = true }

// letGo sends what is still held back.
func (c *boundedConn) letGo() error {
	c.gathering = false
	if len(c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.held)
	c.held = c.held[:0]
	return err
}

func (c *boundedConn) Write(p []byte) (int, error) {
	switch {
	case len(c.held) > 0:
		first := len(c.held)
		pieces := net.Buffers{c.held, p}
		n, err := pieces.WriteTo(c.Conn)
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

// connKey is the key of a request's boundedConn in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.listener.gauge.Dec()
		<-c.listener.slots
		c.listener.open.end()
	})
	return err
}
