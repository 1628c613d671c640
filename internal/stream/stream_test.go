package stream

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest/ingesttest"
	"varve/internal/principal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen returns a Listener on loopback with n connections.
func listen(t *testing.T, o Options, n int) (l *Listener, open []*Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = NewListener(ln, o)
	t.Cleanup(func() { l.Close() })
	for range n {
		dialled, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dialled.Close() })
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		open = append(open, c.(*Conn))
	}
	return l, open
}

// newcomer returns a connection that needs a place.
func (l *Listener) newcomer() *Conn {
	return l.newcomerFrom(l.Addr().String())
}

func (l *Listener) newcomerFrom(remote string) *Conn {
	c, _ := net.Pipe()
	return &Conn{Conn: c, listener: l, network: principal.NetworkOf(remote)}
}

// A connection that finds no place evicts the one that has been idle for longest, and gets its place at
// once. The number of evicted connections that have not ended yet is limited.
func TestOneEvictionForOneConnection(t *testing.T) {
	l, idle := listen(t, Options{Limit: 2}, 2)
	for _, c := range idle {
		c.Idle() // as it was
	}
	first := l.newcomer()
	waiting := &idle[0].sender.idle
	if !l.enter(first, time.Now()) || waiting.Len() != 2 || waiting.Front().Value != idle[1] || l.mu.leaving != 1 {
		t.Errorf("%d connections are idle, %d leave", waiting.Len(), l.mu.leaving)
	}
	idle[0].Idle() // its answer is complete just now
	if waiting.Len() != 2 {
		t.Error("an evicted connection is idle again")
	}
	idle[0].Close()
	if l.mu.leaving != 0 || len(l.mu.conns) != 2 {
		t.Errorf("%d connections leave, %d stay", l.mu.leaving, len(l.mu.conns))
	}
	for range maxReplaced {
		if !l.enter(l.newcomer(), time.Now()) {
			t.Fatal("no room")
		}
	}
	if l.enter(l.newcomer(), time.Now()) {
		t.Errorf("%d connections leave", l.mu.leaving)
	}
	idle[1].Close()
	if !l.enter(l.newcomer(), time.Now()) {
		t.Error("no room, although an evicted connection has ended")
	}
}

// asked is the Arrival of a body that arrives fast, and counts who asks for it.
type asked struct{ times int }

func (a *asked) Slow(time.Time) (float64, bool) { a.times++; return 0, false }
func (a *asked) End() bool                      { return true }

// A new connection of a crowd that has idle ones is not compared with those of all others: that would
// hold up the requests of these. Of several senders with the most connections, the one that has been
// idle for longest gives way.
func TestCrowdDoesNotCostOthers(t *testing.T) {
	l, _ := listen(t, Options{Limit: 100, Patience: time.Second}, 0)
	now, a := time.Now(), &asked{}
	admit := func(remote string) *Conn {
		now = now.Add(time.Millisecond)
		c := l.newcomerFrom(remote)
		c.arrival = a
		if !l.enter(c, now) {
			t.Fatalf("no room for %s", remote)
		}
		return c
	}
	for i := range 80 {
		admit(fmt.Sprintf("198.51.100.%d:1", i)).Busy()
	}
	var first, second []*Conn
	for range 10 {
		first = append(first, admit("192.0.2.1:1"))
		second = append(second, admit("192.0.2.2:1"))
	}
	now = now.Add(time.Minute)
	admit("192.0.2.3:1")
	if !first[0].evicted {
		t.Error("another connection than the one that has been idle for longest is evicted")
	}
	admit("192.0.2.2:1")
	admit("192.0.2.3:1")
	if !second[0].evicted || !second[1].evicted || first[1].evicted {
		t.Error("the sender with the most connections does not give way")
	}
	if a.times > 0 {
		t.Errorf("bodies of others were asked for %d times", a.times)
	}
}

// A sender displaces connections of others only up to the number that they have. The sender with the
// most connections gives way, the one that is idle for longest first, even if connections of others
// are idle for longer.
func TestSendersShareThePlaces(t *testing.T) {
	const crowd, single, third = "192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"
	l, _ := listen(t, Options{Limit: 6, Patience: time.Second}, 0)
	now := time.Now()
	admit := func(remote string) (c *Conn, in bool) {
		now = now.Add(time.Millisecond)
		c = l.newcomerFrom(remote)
		return c, l.enter(c, now)
	}
	one, _ := admit(single)
	now = now.Add(time.Minute)
	var many []*Conn
	for range 5 {
		c, _ := admit(crowd)
		many = append(many, c)
	}
	for range 10 {
		if c, in := admit(crowd); !in || c.evicted {
			t.Fatal("the crowd does not displace its own connections")
		}
	}
	if one.evicted {
		t.Fatal("the crowd has displaced the connection of another sender, the one that is idle for longest")
	}
	if !many[0].evicted || !many[4].evicted || len(l.mu.conns) != 6 || one.sender.places != 1 {
		t.Errorf("%d are open, %d of the single sender", len(l.mu.conns), one.sender.places)
	}
	for range 2 { // as many as the crowd will have
		if _, in := admit(third); !in {
			t.Fatal("the crowd keeps a third sender out")
		}
	}
	if n := many[0].sender.places; n != 3 || one.evicted {
		t.Errorf("the crowd has %d places, the single connection is evicted: %t", n, one.evicted)
	}
	for c := range l.mu.conns {
		if c != one {
			c.Busy()
		}
	}
	if _, in := admit(third); in || one.evicted {
		t.Error("a sender has displaced a busy connection, or one of a sender with fewer")
	}
	if _, in := admit(single); !in || !one.evicted {
		t.Error("a sender cannot replace its own connection")
	}
}

// The connections that a sender replaces leave room among those that are leaving.
func TestReplacedConnectionsLeaveRoom(t *testing.T) {
	const crowd, single = "192.0.2.1:1", "192.0.2.2:1"
	l, _ := listen(t, Options{Limit: 3}, 0)
	for l.enter(l.newcomerFrom(crowd), time.Now()) {
	}
	if l.mu.leaving != maxReplaced {
		t.Errorf("%d connections of the crowd leave, want %d", l.mu.leaving, maxReplaced)
	}
	if !l.enter(l.newcomerFrom(single), time.Now()) {
		t.Error("the connections that the crowd replaces keep another sender out")
	}
}

// trickle is a request that has been arriving at some rate for a while.
type trickle struct {
	rate  float64
	since time.Time
	ended bool
}

func (r *trickle) Slow(now time.Time) (float64, bool) {
	return r.rate, !r.ended && now.Sub(r.since) >= time.Second
}
func (r *trickle) End() bool { r.ended = true; return true }

// Of senders with a connection each, the ones that have been idle for longest give way, in that order.
func TestLongestIdleOfManySenders(t *testing.T) {
	const places = 20
	l, _ := listen(t, Options{Limit: places, Patience: time.Second}, 0)
	now := time.Now()
	var open []*Conn
	for i := range 2 * places {
		now = now.Add(time.Minute)
		c := l.newcomerFrom(fmt.Sprintf("192.0.2.%d:1", i))
		if !l.enter(c, now) {
			t.Fatalf("no room for connection %d", i)
		}
		if open = append(open, c); i < places {
			continue
		}
		if !open[i-places].evicted {
			t.Errorf("connection %d does not replace connection %d", i, i-places)
		}
	}
}

// If all connections have a request, a new connection replaces the one whose request arrives most
// slowly. A connection that has just been accepted keeps its place.
func TestSlowRequestsMakeRoom(t *testing.T) {
	var evicted []string
	l, open := listen(t, Options{Limit: 3, Patience: time.Second, Metrics: Metrics{
		Evicted: func(_ *Conn, waitsFor string) { evicted = append(evicted, waitsFor) },
	}}, 3)
	now := time.Now()
	requests := []*trickle{{rate: 3, since: now}, {rate: 1, since: now}, {rate: 2, since: now.Add(time.Hour)}}
	for i, c := range open {
		c.SetArrival(requests[i])
		c.Busy()
	}
	next, last, later := l.newcomer(), l.newcomer(), now.Add(2*time.Second)
	if l.enter(next, now) {
		t.Error("a request was ended before it had time to arrive")
	}
	for _, c := range []*Conn{next, last} {
		if !l.enter(c, later) {
			t.Fatal("slow requests keep a new connection out")
		}
	}
	if next.evicted || !open[0].evicted || !open[1].evicted || open[2].evicted || len(evicted) != 2 || evicted[0] != WaitsForBody {
		t.Errorf("evicted: %v, the new one: %t", evicted, next.evicted)
	}
	if l.enter(l.newcomer(), later) != true || !next.evicted {
		t.Error("no request is slow, but the oldest of the new connections keeps its place")
	}
}

// The metrics of a stream have its name.
func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	l, open := listen(t, Options{Limit: 1, Refuse: true, Metrics: NewMetrics(r, "carbon", "carbon")}, 1)
	open[0].Busy()
	refused, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	go func() { l.Accept() }()
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a connection beyond the limit was served")
	}
	for name, want := range map[string]float64{"": 1, "_total": 1, "_refused_total": 1, "_evicted_total": 0} {
		if n := ingesttest.Counters(t, r, "varve_carbon_connections"+name)[""]; n != want {
			t.Errorf("varve_carbon_connections%s is %v, want %v", name, n, want)
		}
	}
}

// A connection that waits for a place gets that of one that becomes idle or closes. It stops waiting when the listener
// closes. A listener is drained once its last connection is closed.
func TestWaitForRoom(t *testing.T) {
	for name, free := range map[string]func(l *Listener, busy *Conn){
		"idle":     func(_ *Listener, busy *Conn) { busy.Idle() },
		"closed":   func(_ *Listener, busy *Conn) { busy.Close() },
		"listener": func(l *Listener, _ *Conn) { l.Close() },
	} {
		l, open := listen(t, Options{Limit: 1}, 1)
		open[0].Busy()
		waits, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer waits.Close()
		type result struct {
			c   net.Conn
			err error
		}
		accepted := make(chan result, 1)
		go func() {
			c, err := l.Accept()
			accepted <- result{c, err}
		}()
		free(l, open[0])
		got := <-accepted
		if (name == "listener") != errors.Is(got.err, net.ErrClosed) || (got.err == nil) != (got.c != nil) {
			t.Errorf("%s: %v", name, got.err)
		}
		if name == "idle" && !open[0].evicted {
			t.Errorf("%s: the idle connection keeps its place", name)
		}
		l.Close()
		select {
		case <-l.closed:
		default:
			t.Errorf("%s: the listener is not closed", name)
		}
		select {
		case <-l.Drained():
			t.Errorf("%s: it is drained while a connection is open", name)
		default:
		}
		if got.c != nil {
			got.c.Close()
		}
		open[0].Close()
		<-l.Drained()
	}
}
