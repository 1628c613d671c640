package server

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// A crowd limits how many HTTP/2 requests are answered at once. Each holds its headers and a
// goroutine until the client has read the answer, and a connection can have many: with a limit
// on connections alone, unauthenticated clients could take gigabytes. So each connection may
// always have one request, as with HTTP/1, and further ones only while there is room.
//
// net/http sends the end of an answer, or the whole answer if it is shorter than 4 KiB, after the
// handler has returned, and waits for the client's flow control. To count such requests too, their
// handlers wait for that themselves. This costs an empty frame for each answer, so they do it only
// if there are enough connections for a crowd.
//
// A connection of HTTP/2 with one request takes two to four times the memory of one of HTTP/1: it
// has more goroutines and buffers, and holds what has arrived of a body that waits. So a crowd limits
// these connections too. At the limit, a handshake offers HTTP/1.1 only.
type crowd struct {
	limit  int64 // of requests; beyond it each connection has only one
	inside atomic.Int64
	most   int64        // of conns
	conns  atomic.Int64 // of HTTP/2, and handshakes in which it was offered
}

// crowdOf returns the crowd of a listener with a limit of connections.
func crowdOf(connections int) *crowd {
	return &crowd{limit: max(http2Streams, int64(connections)/4), most: max(http2Streams, int64(connections)/8)}
}

// join reports whether there may be another connection of HTTP/2. If so, quit must follow.
func (c *crowd) join() bool {
	ok := c.conns.Add(1) <= c.most
	if !ok {
		c.quit()
	}
	return ok
}

// quit records that a connection has ended, or that a handshake has not led to one.
func (c *crowd) quit() { c.conns.Add(-1) }

// requestsKey is the key of the number of a connection's requests in their context.
type requestsKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(context.WithValue(ctx, connKey{}, c), requestsKey{}, new(atomic.Int64))
}

// note is net/http's hook for changes of a connection's state.
func (c *crowd) note(nc net.Conn, state http.ConnState) {
	if _, first := nc.(*httpConn); !first && state == http.StateClosed {
		c.quit()
	}
	note(nc, state)
}

// flushes reports whether the handler of a request waits until its answer is sent.
func (c *crowd) flushes(r *http.Request) bool {
	return r.ProtoMajor >= 2 && c.conns.Load()*http2Streams > c.limit
}

// enter reports whether a request may be answered now. The caller calls leave at its end in either
// case.
func (c *crowd) enter(r *http.Request) (leave func(), ok bool) {
	own, _ := r.Context().Value(requestsKey{}).(*atomic.Int64)
	if r.ProtoMajor < 2 || own == nil {
		return func() {}, true
	}
	here, all := own.Add(1), c.inside.Add(1)
	return func() { own.Add(-1); c.inside.Add(-1) }, here == 1 || all <= c.limit
}
