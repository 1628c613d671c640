package server

import (
	"bytes"
	"net/http"
	"sync/atomic"
)

// A framing counts the Content-Length and Transfer-Encoding headers that come on a connection
// of HTTP/1, since net/http hides one of them: it removes the length of a request that has
// chunks too, and the Transfer-Encoding of one of HTTP/1.0, of which it goes by the length. A
// proxy before this server that goes by the other one sees another end of such a request, and
// would pass on what one client has put behind it as the begin of the next request, maybe of
// another client. So the connection has to end with the answer (RFC 9112, 6.1 and 6.3). A line
// of a body that looks like one of the headers costs no more than that, nor does one of a later
// request that was read already.
type framing struct {
	name    string // in small letters, of the header that this line may be
	matched int    // bytes of it, 0 at the begin of a line; -1 if it is another line

	// Those that were read and are of none of the requests so far; net/http reads while a
	// handler runs.
	lengths, codings atomic.Int64
}

const (
	contentLength    = "content-length"
	transferEncoding = "transfer-encoding"
)

// look looks at what was read.
func (f *framing) look(p []byte) {
	for len(p) > 0 {
		if f.matched < 0 {
			end := bytes.IndexByte(p, '\n')
			if end < 0 {
				return
			}
			p, f.matched = p[end+1:], 0
			continue
		}
		f.step(p[0])
		p = p[1:]
	}
}

// step looks at one byte of what may be the name of a header.
func (f *framing) step(c byte) {
	if c >= 'A' && c <= 'Z' {
		c |= 0x20
	}
	if f.matched == 0 {
		f.name = contentLength
		if c == transferEncoding[0] {
			f.name = transferEncoding
		}
	}
	switch {
	case c == f.name[f.matched]:
		f.matched++
	case c == '\n':
		f.matched = 0
	default:
		f.matched = -1
	}
	if f.matched < len(f.name) {
		return
	}
	f.matched = -1
	if f.name == contentLength {
		f.lengths.Add(1)
	} else {
		f.codings.Add(1)
	}
}

// endsTwice reports whether a request whose header was just read may say in two ways where it
// ends. It is called once for each request.
func endsTwice(r *http.Request) bool {
	c, ok := r.Context().Value(connKey{}).(*httpConn)
	if !ok {
		return false
	}
	f := &c.framing
	if len(r.Header["Content-Length"]) > 0 {
		f.lengths.Add(-1)
	}
	if len(r.TransferEncoding) > 0 {
		f.codings.Add(-1)
		return f.lengths.Load() > 0
	}
	return !r.ProtoAtLeast(1, 1) && f.codings.Load() > 0
}
