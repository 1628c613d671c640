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
	open   sync.WaitGroup // open connections
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
	l.open.Add(1)
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
// must be called after Close, and whoever calls it sees to it that connections
// end.
func (l *boundedListener) drained() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		l.open.Wait()
		close(done)
	}()
	return done
}

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
		c.listener.open.Done()
	})
	return err
}
