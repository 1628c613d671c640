package server

import (
	"bytes"
	"net/http"
	"sync/atomic"
)

// A framing looks for requests of HTTP/1 with a Content-Length and a Transfer-Encoding, since
// net/http hides one of them: it removes the length of a request that has chunks too, and the
// Transfer-Encoding of one of HTTP/1.0, of which it goes by the length. A proxy before this
// server that goes by the other one sees another end of such a request, and would pass on what
// one client has put behind it as the begin of the next request, maybe of another client. So
// the connection has to end with the answer (RFC 9112, 6.1 and 6.3).
//
// It knows nothing of where requests begin and end: a header is lines with no empty one among
// them. Lines of a body that look like both headers cost no more than a connection.
type framing struct {
	name    string // in small letters, of the header that this line may be
	matched int    // bytes of it, 0 at the begin of a line; -1 if it is another line

	length, coding bool // whether there were such lines since the last empty one

	// net/http reads while a handler runs.
	twice   atomic.Bool  // there were both
	codings atomic.Int64 // lines with a Transfer-Encoding that are of none of the requests so far
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
		if f.matched == 0 {
			f.begin(p[0])
		} else {
			f.step(p[0])
		}
		p = p[1:]
	}
}

// begin looks at the first byte of a line.
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

// step looks at one byte of what may be the name of a header.
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

// endsTwice reports whether a request whose header was just read may say in two ways where it
// ends. It is called once for each request.
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
