package server

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"varve/internal/httpapi"
	"varve/internal/units"
)

// Limits on a request line with its headers. A connection that waits for its body holds its headers
// all the while, and each name of a header takes some 110 bytes beside its text. With the largest
// headers a connection takes some 70 KiB, and max_connections of them 290 MiB. KairosDB allows 8
// KiB of headers.
const (
	maxHeader      = 32 * units.KiB
	maxHeaderLines = 128
)

// headerFault is the text of a 431.
var headerFault = fmt.Sprintf("the request line with its headers is larger than %s, or has more than %d headers; send a long query by POST", maxHeader.Text(), maxHeaderLines)

// errHeader makes net/http close a connection without an answer of its own.
var errHeader = &net.OpError{Op: "read", Net: "tcp", Err: errors.New(headerFault)}

// refusalTime is how long a client has to read the last answer of its connection.
const refusalTime = 500 * time.Millisecond

// readAhead is the size of the buffer through which net/http reads headers, and whatever arrives
// with them.
const readAhead = 4 << 10

// Read refuses to read more of a header that is too large. Bytes that were read together with the
// end of a header, at most readAhead, do not count.
func (c *httpConn) Read(p []byte) (int, error) {
	if !c.heading {
		n, err := c.read(p)
		if len(p) <= readAhead { // a larger p belongs to a body, whose reader asks for nothing beyond it
			c.framing.look(p[:n])
		}
		return n, err
	}
	if c.refused {
		return 0, errHeader // net/http asks twice
	}
	if c.size >= int(maxHeader) || c.lines > maxHeaderLines {
		c.refused = true
		c.refuseHeader()
		return 0, errHeader
	}
	n, err := c.read(p)
	c.size += n
	c.lines += bytes.Count(p[:n], []byte{'\n'})
	c.framing.look(p[:n])
	return n, err
}

// read returns first the bytes that were read before net/http got the
// connection, and then reads from it.
func (c *httpConn) read(p []byte) (int, error) {
	if len(c.unused) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.unused)
	if c.unused = c.unused[n:]; len(c.unused) == 0 {
		c.unused = nil
	}
	return n, nil
}

func (c *httpConn) refuseHeader() {
	c.metrics.largeHeaders.Inc()
	body := httpapi.ErrorBody(headerFault)
	const status = http.StatusRequestHeaderFieldsTooLarge
	c.SetWriteDeadline(time.Now().Add(refusalTime))
	fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), body)
	c.Linger()
}

// isLarge reports whether the header of a request is too large. With HTTP/1, it can only have too
// many lines, and only if these were read together with the end of the previous request, or in one
// piece with their own end: httpConn.Read has refused all others. HTTP/2 compresses headers, and
// net/http bounds them less strictly.
func isLarge(r *http.Request) bool {
	return len(r.Header) > maxHeaderLines || r.ProtoMajor >= 2 && headerSize(r) > int(maxHeader)
}
