package server

import (
	"net/http"

	"varve/internal/stream"
)

// newPace returns the pace for reading HTTP/2 connections whose clients send more than their
// requests need.
func (l *httpListener) newPace() *stream.Pace {
	p := stream.NewPace()
	p.Paced = l.metrics.paced
	p.Flood = func(c *stream.Conn, owed int64) {
		l.metrics.floods.Inc()
		l.log.Warn("an HTTP/2 client sent frames that belong to no request; the server closed its connection",
			"client", c.RemoteAddr().String(), "bytes", owed)
	}
	return p
}

// meterOf returns the credit account of an HTTP/2 request, nil for other requests.
func meterOf(r *http.Request) *stream.Meter {
	if r.ProtoMajor < 2 {
		return nil
	}
	c := connOf(r.Context())
	if c == nil {
		return nil
	}
	return c.Metered()
}

// What a client may send for a request and its answer. Much of it is TLS: a frame that is sent
// alone is a record of its own, with at least 22 bytes around it.
const (
	requestCredit = 512 // beside the text of the header
	flushCredit   = 128 // for the window updates after a frame that is sent alone
)

// readCredit is the credit for n bytes of a body. It suffices for a body in frames of 100 bytes,
// each sent alone, but not in frames of one byte, each of which would cost a handler a read.
func readCredit(n int) int { return n + n/2 }

// creditOf is what the client may have sent for a request beside its body. A request that the
// client has reset earns nothing: opening requests to reset them is a flood too.
func creditOf(r *http.Request) int {
	if r.Context().Err() != nil {
		return 0
	}
	return requestCredit + headerSize(r)
}

// headerSize is about how many bytes the header of a request has.
func headerSize(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}
