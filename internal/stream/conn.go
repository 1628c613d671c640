package stream

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is a connection of a Listener, and frees its place when it is closed. With
// [Door.TLS] it uses TLS, see Handshake; the embedded net.Conn is the connection below.
type Conn struct {
	net.Conn
	tls       *tls.Conn // nil: no TLS
	trust     atomic.Pointer[trust]
	in        inbound // what tls reads
	silent    int     // bytes that tls has read since it last returned data
	out       outbound
	meter     atomic.Pointer[Meter]
	handshake atomic.Pointer[handshake] // nil after it
	listener  *Listener
	network   netip.Prefix
	once      sync.Once

	sender  *sender       // set when it was admitted
	place   *list.Element // among the sender's idle ones; listener.mu guards it
	rest    uint64        // place in the order in which connections became idle; listener.mu guards it
	evicted bool          // closed to make room; listener.mu guards it
	came    time.Time     // when it was admitted; listener.mu guards it
	arrival Arrival       // listener.mu guards it

	// draining is the time after which a connection that is being drained is no longer
	// read, even if more arrives; nil: it is not being drained. drained says that Read
	// has seen it.
	draining atomic.Pointer[time.Time]
	drained  bool
	waking   sync.Mutex // held while a drain begins, and while SetReadDeadline checks whether one has begun
}

// An Arrival measures how fast a request arrives on a busy connection.
type Arrival interface {
	// Slow reports whether the request arrives so slowly that another connection may
	// have the place. rate is in bytes per second.
	Slow(now time.Time) (rate float64, slow bool)

	// End ends the request, and reports whether that was before it had arrived.
	End() bool
}

// SetArrival lets c lose its place while its request arrives slowly.
func (c *Conn) SetArrival(a Arrival) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.arrival = a
}

// Busy records that a complete request has arrived, so that c keeps its place.
func (c *Conn) Busy() {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withdrawLocked(c)
}

// Idle records that c waits for its client. A new connection is idle.
func (c *Conn) Idle() {
	if c.tls != nil {
		c.out.free()
	}
	l := c.listener
	l.mu.Lock()
	l.withdrawLocked(c)
	retry := false
	if !c.evicted {
		l.restLocked(c)
		retry = len(l.mu.conns) >= l.o.Limit
	}
	l.mu.Unlock()
	if retry {
		l.wake()
	}
}

// drainIdle is how long a connection may be silent, while it is drained, before it
// counts as finished.
const drainIdle = 50 * time.Millisecond

// drain wakes a blocked Read; reading ends when nothing more arrives, or once until has
// passed. The deadline is set before draining, so that it never replaces the one that
// Read sets once it sees draining.
func (c *Conn) drain(until time.Time) {
	c.waking.Lock()
	defer c.waking.Unlock()
	c.Conn.SetReadDeadline(time.Now())
	c.draining.Store(&until)
}

// isDraining reports whether the connection is being drained. It waits for a drain that has woken
// Read and is about to begin.
func (c *Conn) isDraining() bool {
	c.waking.Lock()
	defer c.waking.Unlock()
	return c.draining.Load() != nil
}

// SetReadDeadline sets the deadline of the connection. It does nothing while the connection is
// drained: Read sets the deadlines then, and they are early.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if !c.listener.o.Drain {
		return c.Conn.SetReadDeadline(t)
	}
	c.waking.Lock()
	defer c.waking.Unlock()
	if c.draining.Load() != nil {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// Read reads from the client. While the connection is drained, it fails with
// [os.ErrDeadlineExceeded] once the client is silent.
func (c *Conn) Read(p []byte) (int, error) {
	if c.tls != nil {
		return c.readTLS(p)
	}
	return c.readRaw(p)
}

// Write writes to the client.
func (c *Conn) Write(p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Write(p)
	}
	return c.Conn.Write(p)
}

// SetWriteDeadline sets the deadline for writes. Over TLS it holds until Idle is called; ownWrite
// bounds writes without a deadline.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if c.tls != nil {
		return c.out.bound(c.Conn, t)
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// readRaw reads bytes from the network, before TLS.
func (c *Conn) readRaw(p []byte) (int, error) {
	if !c.listener.o.Drain {
		return c.Conn.Read(p)
	}
	for {
		until := c.draining.Load()
		if until != nil {
			if c.drained && time.Now().After(*until) {
				return 0, os.ErrDeadlineExceeded
			}
			c.drained = true
			c.Conn.SetReadDeadline(time.Now().Add(drainIdle))
		}
		n, err := c.Conn.Read(p)
		if until == nil && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.isDraining() {
			continue // woken up to drain; otherwise the deadline was the handler's
		}
		return n, err
	}
}

const (
	// lingering and lingeringSize bound how long, and how much, Linger reads.
	lingering     = 500 * time.Millisecond
	lingeringSize = 256 << 10
)

// Linger closes the direction to the client, and for a while discards what the client still sends.
// It is for a connection that ends with an answer to a request that was not read to its end:
// closing a connection with unread bytes resets it, and the client would lose the answer. The
// caller closes c afterwards.
func (c *Conn) Linger() {
	end := time.Now().Add(lingering)
	c.Conn.SetReadDeadline(end)
	c.SetWriteDeadline(end)
	if c.tls != nil {
		c.out.end(c.Conn, lingering)
		c.tls.CloseWrite()
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	io.CopyN(io.Discard, c.Conn, lingeringSize) // without decrypting it
}

// Close closes the connection and frees its place.
func (c *Conn) Close() error {
	if c.tls != nil {
		c.out.end(c.Conn, farewell)
		return c.tls.Close() // which closes the connection below it, see side
	}
	return c.close()
}

func (c *Conn) close() error {
	err := c.Conn.Close()
	c.meter.Load().end()
	c.once.Do(func() {
		if open := c.listener.o.Metrics.Open; open != nil {
			open.Dec()
		}
		c.listener.leave(c)
		c.listener.open.End()
	})
	return err
}
