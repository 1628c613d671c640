package stream

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/notify"
	"varve/internal/principal"
)

// Options say how a stream bounds and counts its connections.
type Options struct {
	Name  string // of the stream, in errors and log lines
	Limit int    // of open connections

	// Patience is how long a new connection has for its first request before it becomes
	// the first to be evicted. Until then it is the last to be evicted, but not exempt:
	// otherwise a flood of silent connections would keep all others waiting.
	Patience time.Duration

	// Refuse closes a new connection if no other one can be evicted for it, after a moment if
	// its sender has no other connection. Otherwise it waits in Accept, and further ones wait
	// in the operating system.
	Refuse bool

	// Drain lets an evicted connection read what its client has already sent. Otherwise
	// it is closed at once.
	Drain bool

	Metrics Metrics

	tls   *TLS // see Door
	admit func(context.Context, *Conn) (context.Context, error)
}

// Metrics count the connections of a stream. Nil fields are not counted.
type Metrics struct {
	Open     prometheus.Gauge
	Accepted prometheus.Counter
	Failed   prometheus.Counter // attempts to accept
	Refused  prometheus.Counter
	Evicted  func(c *Conn, waitsFor string)
}

// Values of waitsFor: what an evicted connection was waiting for.
const (
	WaitsForRequest = "request"
	WaitsForBody    = "body"
)

// NewMetrics registers varve_NAME_connections and its counters. section is the section
// of the setting max_connections, which is the limit.
func NewMetrics(r prometheus.Registerer, name, section string) Metrics {
	limitKey := section + ".max_connections"
	set := collectors.Named("varve_" + name + "_connections")
	defer set.MustRegister(r)
	evicted := set.Counter("_evicted_total", "Connections closed to make room for new ones ("+limitKey+"): of the address with the most connections, the one without a complete request for longest.")
	return Metrics{
		Open:     set.Gauge("", "Open connections; at most "+limitKey+"."),
		Accepted: set.Counter("_total", "Connections accepted."),
		Failed:   set.Counter("_failed_total", "Attempts to accept a connection that failed, for example because the process may not open more files. The server tries again."),
		Refused:  set.Counter("_refused_total", "Connections closed at once because "+limitKey+" was reached and all others were storing."),
		Evicted:  func(*Conn, string) { evicted.Inc() },
	}
}

// A Listener limits the open connections. At the limit, a new connection replaces
// another one, see enter.
type Listener struct {
	net.Listener
	o      Options
	freed  chan struct{} // has an element after a connection was closed or became idle
	closed chan struct{}
	once   sync.Once
	open   Activity // one for each open connection

	mu struct {
		sync.Mutex
		conns   map[*Conn]struct{} // open connections, except those that were evicted
		senders map[netip.Prefix]*sender
		leaving int    // evicted connections that have not ended yet
		rests   uint64 // how often a connection became idle
	}
}

// A sender is an address, or an IPv6 /64 network, that has connections among mu.conns.
type sender struct {
	network netip.Prefix
	places  int       // of its connections
	idle    list.List // of *Conn, the longest idle first
}

// A Door is a listener that secures or authenticates its connections. NewListener and
// [Server.Serve] accept it like any listener.
type Door struct {
	net.Listener

	// TLS, if not nil, is used on all connections.
	TLS *TLS

	// Admit, if not nil, authenticates the client of a connection after the handshake. It
	// returns a context that identifies the client, or why it is refused. A [Server] calls
	// it.
	Admit func(ctx context.Context, c *Conn) (context.Context, error)
}

// SetDeadline calls SetDeadline of the listener, if it has one.
func (d *Door) SetDeadline(t time.Time) error {
	if l, ok := d.Listener.(interface{ SetDeadline(time.Time) error }); ok {
		return l.SetDeadline(t)
	}
	return errors.ErrUnsupported
}

// NewListener returns a Listener that accepts from l.
func NewListener(l net.Listener, o Options) *Listener {
	if d, ok := l.(*Door); ok {
		o.tls, o.admit = d.TLS, d.Admit
	}
	b := &Listener{Listener: l, o: o, freed: make(chan struct{}, 1), closed: make(chan struct{})}
	b.mu.conns = map[*Conn]struct{}{}
	b.mu.senders = map[netip.Prefix]*sender{}
	return b
}

const (
	// fullPause is how often a waiting connection looks for one that it can replace.
	fullPause = 100 * time.Millisecond

	// maxLeaving bounds the evicted connections that have not ended yet. Most end at once,
	// but the handler of a request that has just arrived may take long.
	maxLeaving = 128

	// maxReplaced bounds the evicted connections that gave way to a connection of their own sender:
	// a sender that keeps opening connections must leave room for others within maxLeaving.
	maxReplaced = maxLeaving / 2
)

// Accept waits for a connection, then for room. The connection is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &Conn{Conn: nc, listener: l, network: principal.NetworkOf(nc.RemoteAddr().String())}
		if l.o.tls != nil {
			config := l.o.tls.Config()
			c.tls = tls.Server(side{c}, config)
			c.trust.Store(&trust{config.ClientCAs, true}) // the handshake fails otherwise
		}
		entered, err := l.admit(c)
		if err != nil {
			nc.Close()
			return nil, err
		}
		if !entered {
			count(l.o.Metrics.Refused) // before the client can see it
			nc.Close()
			continue
		}
		l.open.Begin()
		count(l.o.Metrics.Accepted)
		if l.o.Metrics.Open != nil {
			l.o.Metrics.Open.Inc()
		}
		return c, nil
	}
}

const (
	// AcceptConn pauses after a failure, from firstRest on, doubled up to longestRest.
	firstRest   = 5 * time.Millisecond
	longestRest = time.Second

	// failuresPerLine is how many failures in a row are logged as one: about a minute's.
	failuresPerLine = 60
)

// AcceptConn is like Accept, but tries again after temporary failures, such as too many open
// files. It returns an error once the listener is closed, its deadline has passed, or ctx ends.
func (l *Listener) AcceptConn(ctx context.Context, log *slog.Logger) (*Conn, error) {
	rest := firstRest
	for failures := 0; ; failures++ {
		nc, err := l.Accept()
		if err == nil {
			return nc.(*Conn), nil
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return nil, err
		}
		count(l.o.Metrics.Failed)
		if failures%failuresPerLine == 0 {
			log.Warn(l.o.Name+": a connection could not be accepted; the server tries again", "address", l.Addr().String(), "error", err)
		}
		select {
		case <-time.After(rest):
		case <-l.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, err
		}
		rest = min(2*rest, longestRest)
	}
}

func count(c prometheus.Counter) {
	if c != nil {
		c.Inc()
	}
}

// admit waits until there is room for c. It returns false if c is refused, and an error
// if l was closed.
func (l *Listener) admit(c *Conn) (entered bool, err error) {
	began := time.Now()
	for !l.enter(c, time.Now()) {
		pause := fullPause
		if l.o.Refuse {
			pause -= time.Since(began)
			if pause <= 0 || l.hasPlace(c.network) {
				return false, nil
			}
		}
		select {
		case <-l.freed:
		case <-time.After(pause):
		case <-l.closed:
			return false, net.ErrClosed
		}
	}
	return true, nil
}

// hasPlace reports whether a sender has a connection.
func (l *Listener) hasPlace(network netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.senders[network] != nil
}

// enter admits c if there is room, or can be made by evicting another connection of c's sender or
// of a sender with more connections than c's. It evicts one of the sender with the most, so that
// the connections of one sender displace those of others only up to the same number. Of these, it
// evicts, in this order:
//
//   - the connection that has been without a complete request for longest, at least
//     Options.Patience;
//   - the one whose request body arrives most slowly;
//   - a new one, which has had little time to send its request.
//
// A connection whose request is being served stays.
func (l *Listener) enter(c *Conn, now time.Time) bool {
	evicted, waitsFor, entered := l.tryEnter(c, now)
	if evicted != nil && l.o.Metrics.Evicted != nil {
		l.o.Metrics.Evicted(evicted, waitsFor)
	}
	return entered
}

// tryEnter is enter without the metric. It returns the connection that it evicted, nil if
// none, and what that one was waiting for.
func (l *Listener) tryEnter(c *Conn, now time.Time) (evicted *Conn, waitsFor string, entered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.conns) >= l.o.Limit {
		if evicted, waitsFor = l.makeRoomLocked(c.network, now); evicted == nil {
			return nil, "", false
		}
	}
	l.mu.conns[c] = struct{}{}
	if c.sender = l.mu.senders[c.network]; c.sender == nil {
		c.sender = &sender{network: c.network}
		l.mu.senders[c.network] = c.sender
	}
	c.sender.places++
	c.came = now
	l.restLocked(c) // until its first request is complete
	return evicted, waitsFor, true
}

// makeRoomLocked evicts a connection for one of a sender and returns it, nil if none can be
// evicted, with what it was waiting for. l.mu must be held.
func (l *Listener) makeRoomLocked(network netip.Prefix, now time.Time) (c *Conn, waitsFor string) {
	stays := func(v victim) bool {
		return v.conn == nil || l.mu.leaving >= maxLeaving || v.conn.network == network && l.mu.leaving >= maxReplaced
	}
	v := l.victimLocked(network, now, true)
	if !stays(v) && v.kind == slowBody && !v.conn.arrival.End() {
		v = l.victimLocked(network, now, false) // the body has just arrived
	}
	if stays(v) {
		return nil, ""
	}
	c = v.conn
	waitsFor = WaitsForRequest
	if v.kind == slowBody {
		waitsFor = WaitsForBody
	}
	l.withdrawLocked(c)
	c.evicted = true
	l.forgetLocked(c)
	l.mu.leaving++
	c.endHandshakeWait()
	if l.o.Drain {
		c.drain(now)
	} else {
		c.Conn.Close() // its reader notices, and closes c
		c.meter.Load().end()
	}
	return c, waitsFor
}

// Kinds of victims, in the order in which they are evicted.
const (
	idleLong = iota // no complete request for Options.Patience
	slowBody        // the body arrives slowly
	idleNew         // no complete request yet
)

// A victim is a connection that may be evicted.
type victim struct {
	conn   *Conn // nil: there is none
	places int   // of its sender
	kind   int
	rate   float64 // of a slow body
}

// before reports whether v is evicted before o.
func (v *victim) before(o *victim) bool {
	switch {
	case o.conn == nil:
		return true
	case v.places != o.places:
		return v.places > o.places
	case v.kind != o.kind:
		return v.kind < o.kind
	case v.kind == slowBody:
		return v.rate < o.rate
	}
	return v.conn.rest < o.conn.rest
}

// victimLocked returns the connection that gives way to one of a network. It examines all senders, and
// all connections only if it looks for a slow body: each new connection of a crowd calls it, and each
// request waits for l.mu. l.mu must be held.
func (l *Listener) victimLocked(network netip.Prefix, now time.Time, bodies bool) (first victim) {
	own := 0
	if s := l.mu.senders[network]; s != nil {
		own = s.places
	}
	gives := func(s *sender) bool { // unless another one gives way before it
		return (s.places > own || s.network == network) && s.places >= first.places
	}
	most := 0
	for _, s := range l.mu.senders {
		if !gives(s) {
			continue
		}
		most = max(most, s.places)
		if v := s.longestIdle(now, l.o.Patience); v.conn != nil && v.before(&first) {
			first = v
		}
	}
	if !bodies || first.kind == idleLong && first.places == most {
		return first
	}
	for c := range l.mu.conns {
		if c.arrival == nil || !gives(c.sender) {
			continue
		}
		if rate, slow := c.arrival.Slow(now); slow {
			if v := (victim{c, c.sender.places, slowBody, rate}); v.before(&first) {
				first = v
			}
		}
	}
	return first
}

// longestIdle returns the connection that has been idle for longest, of those that are not new if
// there is one. The listener's mu must be held.
func (s *sender) longestIdle(now time.Time, patience time.Duration) (v victim) {
	for e := s.idle.Front(); e != nil; e = e.Next() {
		c := e.Value.(*Conn)
		if now.Sub(c.came) >= patience {
			return victim{conn: c, places: s.places, kind: idleLong}
		}
		if v.conn == nil {
			v = victim{conn: c, places: s.places, kind: idleNew}
		}
	}
	return v
}

// forgetLocked removes c from the open connections. l.mu must be held.
func (l *Listener) forgetLocked(c *Conn) {
	if _, open := l.mu.conns[c]; !open {
		return
	}
	delete(l.mu.conns, c)
	if c.sender.places--; c.sender.places == 0 {
		delete(l.mu.senders, c.network)
	}
}

// restLocked adds c to the idle connections. l.mu must be held.
func (l *Listener) restLocked(c *Conn) {
	l.mu.rests++
	c.rest = l.mu.rests
	c.place = c.sender.idle.PushBack(c)
}

// withdrawLocked removes c from the idle connections. l.mu must be held.
func (l *Listener) withdrawLocked(c *Conn) {
	if c.place != nil {
		c.sender.idle.Remove(c.place)
		c.place = nil
	}
}

// leave removes a closed connection.
func (l *Listener) leave(c *Conn) {
	l.mu.Lock()
	l.withdrawLocked(c)
	if c.evicted {
		l.mu.leaving--
	}
	l.forgetLocked(c)
	l.mu.Unlock()
	l.wake()
}

// wake makes a waiting connection look for room again.
func (l *Listener) wake() { notify.Wake(l.freed) }

// Close stops accepting. Open connections stay open.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
	})
	return err
}

// Drained returns a channel that is closed once no connection is open. Call it after Close.
func (l *Listener) Drained() <-chan struct{} { return l.open.None() }
