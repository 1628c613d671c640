package server

import (
	"net/http"

	"varve/internal/stream"
)

// newPace returns the pace at which those connections of HTTP/2 are read whose clients send more
// than their requests need.
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

// meterOf returns what is credited for a request of HTTP/2, nil for other requests.
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

// What a client may send for a request and its answer. Much of it belongs to TLS: a frame that
// comes alone is a record of its own, with 22 bytes or more around it.
const (
	requestCredit = 512 // beside the text of the header
	flushCredit   = 128 // updates of the window for a frame that leaves alone
)

// readCredit is the credit for n bytes of a body. A body that comes in frames of 100 bytes, each
// alone, needs no more. Frames of one byte do: each would take a handler a read.
func readCredit(n int) int { return n + n/2 }

// creditOf is what the client may have sent for a request beside its body. For one that it has reset
// there is nothing: beginning requests to reset them is a flood too.
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
