package stream

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/notify"
)

// A Pace bounds how much all clients of a listener together send beyond what their requests need.
// HTTP/2 frames that request nothing would cost the server as much CPU as their sender spends,
// since net/http answers each. So each connection has a debt: the bytes read from it, less its
// credit for requests. A connection whose debt is above paceFree is read only in its turn. A
// client that sends only requests has almost no debt.
type Pace struct {
	turn chan struct{} // holds an element while a turn lasts

	// Paced counts the turns. nil: not counted.
	Paced prometheus.Counter

	// Flood is called when a connection ends because it owes too many bytes. It may be nil.
	Flood func(c *Conn, owed int64)
}

const (
	// paceFree is the debt up to which a connection is read at once. Bytes of a body that no
	// handler has read yet count as debt, so this is also how far reading may be ahead, but for one
	// piece.
	paceFree = 64 << 10

	// paceMost is the largest debt of a connection that has no request. It is more than flow control
	// lets a client send for requests that were refused meanwhile: 1 MiB in net/http.
	paceMost = 1<<20 + 4*paceFree

	// A turn allows one read of at most pacePiece and lasts paceTurn, or less for a smaller one, which
	// is 1 MiB per second: 80,000 of the smallest frames, which take about 0.15 seconds of CPU.
	paceTurn  = 16 * time.Millisecond
	pacePiece = 16 << 10

	// paceForgiven is the debt per second that is forgiven, for traffic without a request, such as
	// pings.
	paceForgiven = 4 << 10
)

// NewPace returns a Pace without a counter and without a Flood function.
func NewPace() *Pace { return &Pace{turn: make(chan struct{}, 1)} }

// A Meter measures the debt of one connection. All methods except those for reading may be called
// from any goroutine, and a nil Meter counts nothing.
type Meter struct {
	conn     *Conn
	pace     *Pace
	debt     atomic.Int64
	requests atomic.Int64  // that are being answered
	waits    atomic.Bool   // the reader waits for credit or a turn
	credited chan struct{} // wakes the reader
	closed   chan struct{}
	once     sync.Once
	since    time.Time // until when debt was forgiven; used by the reader alone
}

// Meter makes p pace c. Call it before c is read.
func (c *Conn) Meter(p *Pace) {
	m := &Meter{conn: c, pace: p, credited: make(chan struct{}, 1), closed: make(chan struct{}), since: time.Now()}
	c.meter.Store(m)
}

// Metered returns the meter of c, nil if it has none.
func (c *Conn) Metered() *Meter { return c.meter.Load() }

// Begin records that a request has arrived.
func (m *Meter) Begin() {
	if m != nil {
		m.requests.Add(1)
	}
}

// End records that a request has ended, and credits n bytes for it.
func (m *Meter) End(n int) {
	if m != nil {
		m.Credit(n)
		m.requests.Add(-1)
	}
}

// Credit reduces the debt by n bytes.
func (m *Meter) Credit(n int) {
	if m == nil {
		return
	}
	m.debt.Add(-int64(n))
	if m.waits.Load() {
		notify.Wake(m.credited)
	}
}

// end wakes a waiting reader, which fails.
func (m *Meter) end() {
	if m != nil {
		m.once.Do(func() { close(m.closed) })
	}
}

// read calls fill once the connection may be read.
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
	p = p[:min(int64(len(p)), max(paceFree-owed, 0)+pacePiece)]
	if owed > paceFree {
		if err := m.wait(paceTurn * time.Duration(len(p)) / pacePiece); err != nil {
			return 0, err
		}
	}
	n, err := fill(p)
	m.debt.Add(int64(n))
	return n, err
}

// settle forgives debt for the time since the last call, and returns the debt. It limits credit,
// which is negative debt, to paceFree.
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

// waiting reports whether a read would wait for credit or a turn.
func (m *Meter) waiting() bool { return m != nil && m.debt.Load() > paceFree }

// wait waits until the debt is at most paceFree, or until the connection has a turn, which lasts as
// long as given.
func (m *Meter) wait(turn time.Duration) error {
	m.waits.Store(true)
	defer m.waits.Store(false)
	for m.debt.Load() > paceFree { // else it was credited meanwhile
		select {
		case <-m.credited:
		case <-m.closed:
			return net.ErrClosed
		case m.pace.turn <- struct{}{}:
			time.AfterFunc(turn, func() { <-m.pace.turn })
			count(m.pace.Paced)
			return nil
		}
	}
	return nil
}
