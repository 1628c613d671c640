package server

import (
	"bytes"
	"net/http"
	"sync/atomic"
)

// A framing finds HTTP/1 requests with both a Content-Length and a Transfer-Encoding, because
// net/http hides one of them: it removes the length of a request with chunks, and the
// Transfer-Encoding of an HTTP/1.0 request, for which it uses the length. A proxy in front of this
// server that uses the other header sees a different end of such a request. It could then pass on
// what one client has put after that end as the beginning of the next request, perhaps of another
// client. So the connection must end with the answer (RFC 9112, 6.1 and 6.3).
//
// It does not know where requests begin and end: to it a header is a run of lines without an empty
// one. If lines of a body look like both headers, the only cost is a connection.
type framing struct {
	name    string // in lower case, of the header that this line may be
	matched int    // bytes of it, 0 at the beginning of a line; -1 if it is another line

	length, coding bool // such lines were seen since the last empty one

	// net/http reads while a handler runs.
	twice   atomic.Bool  // both were seen
	codings atomic.Int64 // lines with a Transfer-Encoding that belong to no request so far
}

const (
	contentLength    = "content-length"
	transferEncoding = "transfer-encoding"
)

// look examines bytes that were read.
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
		if f.matched == 0 {
			f.begin(p[0])
		} else {
			f.step(p[0])
		}
		p = p[1:]
	}
}

// begin examines the first byte of a line.
func (f *framing) begin(c byte) {
	switch c {
	case '\r': // of an empty line
	case '\n':
		f.length, f.coding = false, false
	default:
		f.name = contentLength
		if c|0x20 == transferEncoding[0] {
			f.name = transferEncoding
		}
		f.step(c)
	}
}

// step examines one byte of what may be the name of a header.
func (f *framing) step(c byte) {
	if c >= 'A' && c <= 'Z' {
		c |= 0x20
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
	f.length = f.length || f.name == contentLength
	if f.name == transferEncoding {
		f.coding = true
		f.codings.Add(1)
	}
	if f.length && f.coding {
		f.twice.Store(true)
	}
}

// endsTwice reports whether the request whose header was just read may state its end in two ways.
// It is called once for each request.
func endsTwice(r *http.Request) bool {
	c, ok := r.Context().Value(connKey{}).(*httpConn)
	switch {
	case !ok:
		return false
	case len(r.TransferEncoding) > 0:
		c.framing.codings.Add(-1)
		return c.framing.twice.Load()
	}
	return !r.ProtoAtLeast(1, 1) && c.framing.codings.Load() > 0
}
