package stream

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/gate"
)

// A Pace bounds what the clients of a listener send beyond what their requests need, all of them
// together. Frames of HTTP/2 that request nothing cost as much CPU as their sender has, and
// net/http answers each. So each connection has a debt: the bytes that were read from it, less
// what it was credited with for its requests. Above paceFree it is read only when it is its turn.
// Those whose clients only send requests have next to no debt.
type Pace struct {
	turn chan struct{} // holds an element while a turn lasts

	// Paced counts the turns. nil: not counted.
	Paced prometheus.Counter

	// Flood is called when a connection ends because it owes too many bytes. It may be nil.
	Flood func(c *Conn, owed int64)
}

const (
	// paceFree is what a connection may owe and is still read at once. What of a body has come
	// and was not read by a handler is owed too, so this is also how far reading is ahead.
	paceFree = 64 << 10

	// paceMost is what a connection may owe while it has no request. It is more than flow control
	// lets a client send for requests that were refused meanwhile: 1 MiB in net/http.
	paceMost = 1<<20 + 4*paceFree

	// A turn lasts paceTurn and is one read of at most pacePiece, which makes 1 MiB a second. In
	// that, there are 80,000 of the smallest frames, which take some 0.15 seconds of CPU.
	paceTurn  = 16 * time.Millisecond
	pacePiece = 16 << 10

	// paceForgiven is what a connection needs a second without a request, such as for pings.
	paceForgiven = 4 << 10
)

// NewPace returns a Pace that tells nobody.
func NewPace() *Pace { return &Pace{turn: make(chan struct{}, 1)} }

// A Meter is what one connection has sent and was credited with. All methods but those for
// reading may be called from any goroutine, and a nil Meter counts nothing.
type Meter struct {
	conn     *Conn
	pace     *Pace
	debt     atomic.Int64
	requests atomic.Int64  // that are being answered
	waits    atomic.Bool   // the reader waits for credit or a turn
	credited chan struct{} // wakes it
	closed   chan struct{}
	once     sync.Once
	since    time.Time // up to when debt was forgiven; of the reader
}

// Meter makes c a connection that is paced by p. It is called before c is read.
func (c *Conn) Meter(p *Pace) {
	m := &Meter{conn: c, pace: p, credited: make(chan struct{}, 1), closed: make(chan struct{}), since: time.Now()}
	c.meter.Store(m)
}

// Metered returns the meter of c, nil if it has none.
func (c *Conn) Metered() *Meter { return c.meter.Load() }

// Begin notes that a request has come.
func (m *Meter) Begin() {
	if m != nil {
		m.requests.Add(1)
	}
}

// End notes that a request has ended, for which the client may have sent n bytes.
func (m *Meter) End(n int) {
	if m != nil {
		m.Credit(n)
		m.requests.Add(-1)
	}
}

// Credit lets the client send n bytes more.
func (m *Meter) Credit(n int) {
	if m == nil {
		return
	}
	m.debt.Add(-int64(n))
	if m.waits.Load() {
		gate.Wake(m.credited)
	}
}

// end makes a reader that waits return.
func (m *Meter) end() {
	if m != nil {
		m.once.Do(func() { close(m.closed) })
	}
}

// read reads by fill once it may.
func (m *Meter) read(p []byte, fill func([]byte) (int, error)) (int, error) {
	if m == nil {
		return fill(p)
	}
	owed := m.settle(time.Now())
	if owed > paceMost && m.requests.Load() == 0 {
		if m.pace.Flood != nil {
			m.pace.Flood(m.conn, owed)
		}
		return 0, net.ErrClosed
	}
	if owed > paceFree {
		if err := m.wait(); err != nil {
			return 0, err
		}
		p = p[:min(len(p), pacePiece)]
	}
	n, err := fill(p)
	m.debt.Add(int64(n))
	return n, err
}

// settle forgives what a connection may send without a request, and returns the debt. Credit is
// kept up to paceFree.
func (m *Meter) settle(now time.Time) int64 {
	forgiven := int64(now.Sub(m.since).Seconds() * paceForgiven)
	if forgiven > 0 {
		m.since = now
	}
	for {
		was := m.debt.Load()
		owed := max(was-forgiven, min(was, 0), -paceFree)
		if owed == was || m.debt.CompareAndSwap(was, owed) {
			return owed
		}
	}
}

// wait waits until the connection owes little, or it is its turn.
func (m *Meter) wait() error {
	m.waits.Store(true)
	defer m.waits.Store(false)
	for m.debt.Load() > paceFree { // else it was credited meanwhile
		select {
		case <-m.credited:
		case <-m.closed:
			return net.ErrClosed
		case m.pace.turn <- struct{}{}:
			time.AfterFunc(paceTurn, func() { <-m.pace.turn })
			count(m.pace.Paced)
			return nil
		}
	}
	return nil
}
