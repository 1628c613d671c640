package cql_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// network is what is between a session and the nodes: it can be cut, and it can
// stop carrying anything without a word, as a paused process or a dead machine
// does.
type network struct {
	mu     sync.Mutex
	cut    bool
	frozen chan struct{} // not nil: closed when the network moves on
	delay  time.Duration // of each answer
	conns  map[*conn]struct{}
}

type conn struct {
	net.Conn
	network *network
	closed  chan struct{}
	once    sync.Once
}

func (n *network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := n.pass(nil); err != nil {
		return nil, err
	}
	raw, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, network: n, closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns == nil {
		n.conns = make(map[*conn]struct{})
	}
	n.conns[c] = struct{}{}
	return c, nil
}

// pass waits while the network is frozen.
func (n *network) pass(c *conn) error {
	for {
		n.mu.Lock()
		frozen, cut, delay := n.frozen, n.cut, n.delay
		n.mu.Unlock()
		if cut {
			return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		if frozen == nil {
			if c != nil {
				time.Sleep(delay)
			}
			return nil
		}
		if c == nil { // a connection is accepted by the kernel of a paused process
			return nil
		}
		select {
		case <-frozen:
		case <-c.closed:
			return errors.New("closed")
		}
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if passed := c.network.pass(c); passed != nil {
		return 0, passed
	}
	return n, err
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.network.mu.Lock()
		delete(c.network.conns, c)
		c.network.mu.Unlock()
	})
	return c.Conn.Close()
}

// Cut breaks all connections and refuses new ones until Mend.
func (n *network) Cut() {
	n.mu.Lock()
	n.cut = true
	var all []*conn
	for c := range n.conns {
		all = append(all, c)
	}
	n.mu.Unlock()
	for _, c := range all {
		c.Conn.Close()
	}
}

func (n *network) Mend() {
	n.mu.Lock()
	n.cut = false
	n.mu.Unlock()
}

// Freeze holds back all answers until Thaw.
func (n *network) Freeze() {
	n.mu.Lock()
	n.frozen = make(chan struct{})
	n.mu.Unlock()
}

func (n *network) Thaw() {
	n.mu.Lock()
	close(n.frozen)
	n.frozen = nil
	n.mu.Unlock()
}

// Delay holds each answer back for d.
func (n *network) Delay(d time.Duration) {
	n.mu.Lock()
	n.delay = d
	n.mu.Unlock()
}

// brittle is a network that takes a number of writes, and is lost then.
type brittle struct{ left atomic.Int64 }

func (b *brittle) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if b.left.Load() < 0 {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return brittleConn{c, b}, err
}

type brittleConn struct {
	net.Conn
	network *brittle
}

func (c brittleConn) Write(p []byte) (int, error) {
	if c.network.left.Add(-1) < 0 {
		c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}
