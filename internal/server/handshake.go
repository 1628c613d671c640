package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"varve/internal/httpapi"
	"varve/internal/stream"
)

// shake accepts connections and makes their handshakes, each in a goroutine of its own,
// so that a slow one holds up nobody. They are bounded as all connections are. It returns
// when the listener is closed and no handshake is left.
//
// net/http speaks HTTP/2 on connections that are *tls.Conn only, so it has to be known
// which protocol a client wants before it gets the connection.
func (l *httpListener) shake() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var shaking sync.WaitGroup
	defer shaking.Wait()
	defer cancel() // before that
	for {
		nc, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // one that may pass, such as too many open files
			l.log.Warn("http: accept failed, trying again", "address", l.Addr().String(), "error", err)
			select {
			case <-l.Closed():
			case <-time.After(acceptPause):
			}
			continue
		}
		c := nc.(*stream.Conn)
		shaking.Go(func() {
			if err := c.Handshake(ctx); err != nil {
				answerPlain(c, err)
				c.Close()
				return
			}
			select {
			case l.shaken <- c:
			case <-l.Closed():
				c.Close()
			}
		})
	}
}

// acceptPause is how long accepting rests after a failure that may pass.
const acceptPause = 50 * time.Millisecond

// acceptShaken waits for a connection whose handshake is made.
func (l *httpListener) acceptShaken() (net.Conn, error) {
	select {
	case c := <-l.shaken:
		if c.TLS().ConnectionState().NegotiatedProtocol == http2 {
			boundBacklog(c)
			return c.TLS(), nil
		}
		return l.connOf(c), nil
	case <-l.Closed():
		return nil, net.ErrClosed
	}
}

// http2Backlog is half of what clients of HTTP/2 may have on the way by its flow control, in
// net/http. Linux gives a socket twice of what it is asked for.
const http2Backlog = 512 << 10

// boundBacklog bounds what the kernel takes in for a connection before it is read. Flow control
// is of bodies only, and a frame may have nine bytes: of the tens of megabytes that a kernel
// may keep for each connection, the frames would be read for long after their sender has left.
func boundBacklog(c *stream.Conn) {
	if socket, ok := c.Conn.(interface{ SetReadBuffer(int) error }); ok {
		_ = socket.SetReadBuffer(http2Backlog) // else it is as large as the kernel likes
	}
}

// http2 is the name of HTTP/2 in a handshake.
const http2 = "h2"

// noteHTTP2 is note for a connection of HTTP/2, which is busy while any of its requests
// is.
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
	c.Conn.SetDeadline(time.Now().Add(lingering))
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
