package server

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// A crowd limits how many HTTP/2 requests are answered at once. Each holds its headers and a
// goroutine until the client has read the answer, and a connection can have many: a limit on
// connections alone would let clients that nobody knows take gigabytes. So each connection may
// always have one request, as with HTTP/1, and further ones only while there is room.
type crowd struct {
	limit  int64 // of requests; beyond it each connection has only one
	inside atomic.Int64
}

// crowdOf returns the crowd of a listener with a limit of connections.
func crowdOf(connections int) *crowd {
	return &crowd{limit: max(http2Streams, int64(connections)/4)}
}

// requestsKey is the key of the number of a connection's requests in their context.
type requestsKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(context.WithValue(ctx, connKey{}, c), requestsKey{}, new(atomic.Int64))
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
