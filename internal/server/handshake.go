package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"varve/internal/httpapi"
	"varve/internal/stream"
)

// shake performs the handshake of a connection, and returns the protocol that was chosen. A
// connection of HTTP/2 has joined the crowd. ok is false if the handshake fails. ctx ends when the
// listener is closed.
func (l *httpListener) shake(ctx context.Context, c *stream.Conn, all *crowd) (protocol string, ok bool) {
	o := &offer{crowd: all}
	defer func() {
		if o.joined && (!ok || protocol != http2) {
			all.quit()
		}
	}()
	if err := c.Handshake(context.WithValue(ctx, offerKey{}, o)); err != nil {
		answerPlain(c, err)
		return "", false
	}
	return c.TLS().ConnectionState().NegotiatedProtocol, ctx.Err() == nil
}

// An offer is whether a handshake offers HTTP/2.
type offer struct {
	crowd  *crowd
	joined bool
}

// offerKey is the key of the offer in the context of a handshake.
type offerKey struct{}

// offering returns a [tls.Config.GetConfigForClient] for a configuration that offers HTTP/2. It
// chooses first, which does not, if the crowd has no room for another connection of HTTP/2.
func offering(first *tls.Config) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		o, _ := hello.Context().Value(offerKey{}).(*offer)
		if o == nil || !slices.Contains(hello.SupportedProtos, http2) {
			return nil, nil
		}
		if o.joined = o.joined || o.crowd.join(); !o.joined {
			return first, nil
		}
		return nil, nil
	}
}

// http2Backlog is half of what the flow control of net/http allows HTTP/2 clients to have in
// flight. Linux gives a socket twice the size that is requested.
const http2Backlog = 512 << 10

// boundBacklog limits how much of a connection the kernel buffers before it is read. Flow control
// covers bodies only, and a frame may have nine bytes: reading the frames in the tens of megabytes
// that a kernel may buffer for a connection would go on long after their sender has left.
func boundBacklog(c *stream.Conn) {
	if socket, ok := c.Conn.(interface{ SetReadBuffer(int) error }); ok {
		_ = socket.SetReadBuffer(http2Backlog) // otherwise the kernel chooses, up to tens of megabytes
	}
}

// The names of HTTP/2 and of HTTP/1.1 in a handshake.
const (
	http2 = "h2"
	http1 = "http/1.1"
)

// noteHTTP2 is note for an HTTP/2 connection, which is busy while any of its requests is.
func noteHTTP2(c *stream.Conn, state http.ConnState) {
	switch {
	case c == nil:
	case state == http.StateIdle:
		c.Idle()
	default:
		c.Busy()
	}
}

// plainFault is the text of a 400.
const plainFault = "this port speaks TLS; use https://"

// answerPlain answers a client that sends plain HTTP instead of a handshake.
func answerPlain(c *stream.Conn, err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || !looksLikeHTTP(record.RecordHeader) {
		return
	}
	body := httpapi.ErrorBody(plainFault)
	c.Conn.SetDeadline(time.Now().Add(refusalTime))
	fmt.Fprintf(c.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
}

// looksLikeHTTP reports whether the first bytes of a connection begin a request.
func looksLikeHTTP(head [5]byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH"} {
		if strings.HasPrefix(method, string(head[:])) {
			return true
		}
	}
	return false
}
