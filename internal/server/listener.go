package server

import (
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
type boundedConn struct {
	net.Conn
	listener *boundedListener
	once     sync.Once
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
