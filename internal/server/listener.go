package server

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A boundedListener limits the open connections. At the limit, a new connection
// replaces the one that has been without a request for longest. While all have a
// request, the new one waits in Accept, and further ones wait with the operating
// system.
type boundedListener struct {
	net.Listener
	limit   int
	freed   chan struct{} // has an element after a connection was closed, or has become idle
	closed  chan struct{}
	once    sync.Once
	open    activity // one for each open connection
	gauge   prometheus.Gauge
	evicted prometheus.Counter

	mu struct {
		sync.Mutex
		open    int
		evicted *boundedConn // closed to make room, but still counted in open; nil if none is
		idle    *list.List   // of *boundedConn, the longest idle first
	}
}

func newBoundedListener(l net.Listener, limit int, gauge prometheus.Gauge, evicted prometheus.Counter) *boundedListener {
	b := &boundedListener{
		Listener: l,
		limit:    limit,
		freed:    make(chan struct{}, 1),
		closed:   make(chan struct{}),
		gauge:    gauge,
		evicted:  evicted,
	}
	b.mu.idle = list.New()
	return b
}

// Accept waits for a connection, then for room.
func (l *boundedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for !l.enter() {
		select {
		case <-l.freed:
		case <-l.closed:
			c.Close()
			return nil, net.ErrClosed
		}
	}
	l.open.begin()
	l.gauge.Inc()
	bounded := &boundedConn{Conn: c, listener: l}
	l.mu.Lock()
	bounded.place = l.mu.idle.PushBack(bounded) // until its first request is complete
	l.mu.Unlock()
	return bounded, nil
}

// enter counts one more connection if there is room. If there is none, it evicts
// the connection that has been idle for longest, whose end makes room.
func (l *boundedListener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.open < l.limit {
		l.mu.open++
		return true
	}
	longest := l.mu.idle.Front()
	if longest == nil || l.mu.evicted != nil { // one eviction is enough for one connection
		return false
	}
	c := l.mu.idle.Remove(longest).(*boundedConn)
	c.place, l.mu.evicted = nil, c
	l.evicted.Inc()
	c.Conn.Close() // net/http notices, and closes c
	return false
}

// note is net/http's hook for changes of a connection's state. It keeps the list
// of idle connections.
func (l *boundedListener) note(nc net.Conn, state http.ConnState) {
	c, ok := nc.(*boundedConn)
	if !ok || state == http.StateNew {
		return
	}
	l.mu.Lock()
	if c.place != nil {
		l.mu.idle.Remove(c.place)
		c.place = nil
	}
	if state == http.StateIdle {
		c.place = l.mu.idle.PushBack(c)
	}
	retry := l.mu.open >= l.limit && state == http.StateIdle
	if l.mu.evicted == c { // its request came just before; the handler may take long
		l.mu.evicted, retry = nil, true
	}
	l.mu.Unlock()
	if retry {
		l.wake()
	}
}

// leave counts one connection less.
func (l *boundedListener) leave(c *boundedConn) {
	l.mu.Lock()
	if l.mu.evicted == c {
		l.mu.evicted = nil
	}
	if c.place != nil {
		l.mu.idle.Remove(c.place)
		c.place = nil
	}
	l.mu.open--
	l.mu.Unlock()
	l.wake()
}

// wake lets a connection that waits look for room again.
func (l *boundedListener) wake() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
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

// A boundedConn gives its place back when it is closed.
//
// net/http sends an answer of more than its buffer of 4 KiB in two pieces, the
// buffer and the rest, which wakes the client twice and costs as much as the
// smallest queries take. Between gather and letGo a first piece is held back
// until there is a second one, and both are sent at once.
type boundedConn struct {
	net.Conn
	listener  *boundedListener
	once      sync.Once
	place     *list.Element // among idle ones; listener.mu guards it
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
		c.listener.leave(c)
		c.listener.open.end()
	})
	return err
}
