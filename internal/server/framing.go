package server

import (
	"bytes"
	"net/http"
	"sync/atomic"
)

// A framing counts the Content-Length headers that come on a connection of HTTP/1, since
// net/http removes the header of a request that has Transfer-Encoding too. A proxy before this
// server that goes by the length sees another end of such a request, and would pass on what one
// client has put behind it as the begin of the next request, maybe of another client. So the
// connection has to end with the answer (RFC 9112, 6.3). A line of a body that looks like the
// header costs no more than that, nor does one of a later request that was read already.
type framing struct {
	matched int          // bytes of the name at the begin of this line; -1 if it is another line
	lengths atomic.Int64 // that were read and are of none of the requests so far; net/http reads while a handler runs
}

const contentLength = "content-length"

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
		switch c := p[0]; {
		case c == contentLength[f.matched], c >= 'A' && c <= 'Z' && c|0x20 == contentLength[f.matched]:
			f.matched++
		case c == '\n':
			f.matched = 0
		default:
			f.matched = -1
		}
		if f.matched == len(contentLength) {
			f.lengths.Add(1)
			f.matched = -1
		}
		p = p[1:]
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
		return c.framing.lengths.Load() > 0
	case len(r.Header["Content-Length"]) > 0:
		c.framing.lengths.Add(-1)
	}
	return false
}
