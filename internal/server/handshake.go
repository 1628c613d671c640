package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"varve/internal/httpapi"
	"varve/internal/stream"
)

// shake performs the handshake of a connection, and returns the protocol that the client has
// chosen. ok is false if the handshake fails. ctx ends when the listener is closed.
func (l *httpListener) shake(ctx context.Context, c *stream.Conn) (protocol string, ok bool) {
	if err := c.Handshake(ctx); err != nil {
		answerPlain(c, err)
		return "", false
	}
	return c.TLS().ConnectionState().NegotiatedProtocol, ctx.Err() == nil
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

// http2 is the name of HTTP/2 in a handshake.
const http2 = "h2"

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
