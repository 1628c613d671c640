package server

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// A crowd bounds the requests of HTTP/2 that are answered at once. Each holds its headers
// and a goroutine for as long as the client takes no answer, and a connection can have many:
// the bound on connections alone would leave room for gigabytes to clients that nobody
// knows. So a connection always has one request, as with HTTP/1, and further ones while
// there is room.
type crowd struct {
	limit  int64 // from which on a connection has one request only
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

// enter reports whether a request may be answered now. leave ends it, also one that may not.
func (c *crowd) enter(r *http.Request) (leave func(), ok bool) {
	own, _ := r.Context().Value(requestsKey{}).(*atomic.Int64)
	if r.ProtoMajor < 2 || own == nil {
		return func() {}, true
	}
	here, all := own.Add(1), c.inside.Add(1)
	return func() { own.Add(-1); c.inside.Add(-1) }, here == 1 || all <= c.limit
}
