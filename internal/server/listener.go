package server

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// A boundedListener limits the open connections. At the limit, a new connection
// replaces another one, see enter. While none can be replaced, the new one waits in
// Accept, and further ones wait with the operating system.
type boundedListener struct {
	net.Listener
	limit   int
	freed   chan struct{} // has an element after a connection was closed, or has become idle
	closed  chan struct{}
	once    sync.Once
	open    activity // one for each open connection
	log     *slog.Logger
	metrics *metrics

	mu struct {
		sync.Mutex
		conns   map[*boundedConn]struct{} // the open ones, without those that were evicted
		leaving int                       // were evicted and have not ended yet
		idle    *list.List                // of *boundedConn, the longest idle first
	}
}

func newBoundedListener(l net.Listener, limit int, log *slog.Logger, m *metrics) *boundedListener {
	b := &boundedListener{
		Listener: l,
		limit:    limit,
		freed:    make(chan struct{}, 1),
		closed:   make(chan struct{}),
		log:      log,
		metrics:  m,
	}
	b.mu.conns = map[*boundedConn]struct{}{}
	b.mu.idle = list.New()
	return b
}

const (
	// fullPause is how often a connection that waits for room looks for one that it
	// can replace.
	fullPause = 100 * time.Millisecond

	// maxLeaving bounds how many evicted connections have not ended yet. Most end
	// at once; the handler of one whose request has just come may take long.
	maxLeaving = 64
)

// Accept waits for a connection, then for room.
func (l *boundedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundedConn{Conn: nc, listener: l, heading: true}
	for !l.enter(c, time.Now()) {
		select {
		case <-l.freed:
		case <-time.After(fullPause):
		case <-l.closed:
			nc.Close()
			return nil, net.ErrClosed
		}
	}
	l.open.begin()
	l.metrics.connections.Inc()
	return c, nil
}

// enter admits c if there is room. If there is none, it makes room by evicting
// another connection: the one that has been without a complete request header for
// longest; if there is none, the one whose request body arrives most slowly; if there
// is none, one that has come just now and has had little time to send its request. A
// connection whose request is being served stays.
func (l *boundedListener) enter(c *boundedConn, now time.Time) bool {
	evicted, waitsFor, entered := l.tryEnter(c, now)
	if evicted == nil {
		return entered
	}
	l.metrics.evicted.WithLabelValues(waitsFor).Inc()
	if waitsFor == waitsForBody {
		l.log.Warn("all connections of server.max_connections are in use, and each has a request or has just come; the one whose request body arrived most slowly was closed for a new one",
			"max_connections", l.limit, "client", evicted.RemoteAddr().String())
	}
	return true
}

// tryEnter admits c if there is room. It returns the connection that it evicted for
// that, nil if none, and what that waited for.
func (l *boundedListener) tryEnter(c *boundedConn, now time.Time) (evicted *boundedConn, waitsFor string, entered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.conns) >= l.limit {
		if evicted, waitsFor = l.makeRoomLocked(now); evicted == nil {
			return nil, "", false
		}
	}
	l.mu.conns[c] = struct{}{}
	c.came = now
	c.place = l.mu.idle.PushBack(c) // until its first request is complete
	return evicted, waitsFor, true
}

// What an evicted connection was waiting for; a label of a metric.
const (
	waitsForRequest = "request"
	waitsForBody    = "body"
)

// makeRoomLocked evicts a connection, nil if there is none to evict, and says what it
// waited for. l.mu must be held.
func (l *boundedListener) makeRoomLocked(now time.Time) (c *boundedConn, waitsFor string) {
	if l.mu.leaving >= maxLeaving {
		return nil, ""
	}
	idle := l.longestLocked(now)
	if idle == nil {
		if c = l.slowestLocked(now); c == nil {
			idle = l.mu.idle.Front() // that has just come
		}
	}
	switch {
	case idle != nil:
		c, waitsFor = l.mu.idle.Remove(idle).(*boundedConn), waitsForRequest
	case c != nil:
		waitsFor = waitsForBody
	default:
		return nil, ""
	}
	c.place, c.evicted = nil, true
	delete(l.mu.conns, c)
	l.mu.leaving++
	c.Conn.Close() // net/http notices, and closes c
	return c, waitsFor
}

// firstPatience is how long a new connection has for its first request before it goes
// first. If it kept its place by force, a flood of silent connections would keep all
// others waiting.
const firstPatience = time.Second

// longestLocked returns the connection that has been without a complete request header
// for longest, nil if there is none but new ones. l.mu must be held.
func (l *boundedListener) longestLocked(now time.Time) *list.Element {
	for e := l.mu.idle.Front(); e != nil; e = e.Next() {
		if now.Sub(e.Value.(*boundedConn).came) >= firstPatience {
			return e
		}
	}
	return nil
}

// slowestLocked returns the connection whose body arrives most slowly, nil if none
// is slow, and ends the arrival. It looks at all connections, which takes some
// microseconds per thousand. l.mu must be held.
func (l *boundedListener) slowestLocked(now time.Time) (slowest *boundedConn) {
	var least float64
	for c := range l.mu.conns {
		if rate, slow := c.arrival.slow(now); slow && (slowest == nil || rate < least) {
			slowest, least = c, rate
		}
	}
	if slowest != nil && !slowest.arrival.end() {
		return nil // it has just arrived
	}
	return slowest
}

// note is net/http's hook for changes of a connection's state. It keeps the list
// of idle connections.
func (l *boundedListener) note(nc net.Conn, state http.ConnState) {
	c, ok := nc.(*boundedConn)
	if !ok || state == http.StateNew {
		return
	}
	c.heading = state == http.StateIdle
	if c.heading {
		c.lines, c.size = 0, 0
	}
	l.mu.Lock()
	l.withdrawLocked(c)
	retry := false
	if c.heading && !c.evicted {
		c.place = l.mu.idle.PushBack(c)
		retry = len(l.mu.conns) >= l.limit
	}
	l.mu.Unlock()
	if retry {
		l.wake()
	}
}

// withdrawLocked takes c out of the idle connections. l.mu must be held.
func (l *boundedListener) withdrawLocked(c *boundedConn) {
	if c.place != nil {
		l.mu.idle.Remove(c.place)
		c.place = nil
	}
}

// leave counts one connection less.
func (l *boundedListener) leave(c *boundedConn) {
	l.mu.Lock()
	l.withdrawLocked(c)
	if c.evicted {
		l.mu.leaving--
	}
	delete(l.mu.conns, c)
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
	evicted   bool          // closed to make room; listener.mu guards it
	came      time.Time     // when it found room; listener.mu guards it
	arrival   arrival
	gathering bool
	held      []byte

	// While heading, net/http reads the header of a request. Its goroutine for the
	// connection sets these, also those that note sets.
	heading bool
	lines   int // that were read since the header began
	size    int // bytes, likewise
	refused bool
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
		c.listener.metrics.connections.Dec()
		c.listener.leave(c)
		c.listener.open.end()
	})
	return err
}
