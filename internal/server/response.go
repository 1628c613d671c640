package server

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// A response is the answer to one request on its way out. It remembers what
// was sent and keeps the connection's deadlines ahead of a client that reads.
type response struct {
	http.ResponseWriter
	request  *http.Request // the mux sets its Pattern before the handler runs
	status   int           // 0 until the header is written
	written  int64         // bytes of body
	discard  bool          // drop the body
	draining func() bool

	control *http.ResponseController
	stall   time.Duration
	allowed time.Time // write deadline
}

// newResponse also puts r's body under a deadline.
func newResponse(w http.ResponseWriter, r *http.Request, stall time.Duration, draining func() bool) *response {
	rw := &response{
		ResponseWriter: w,
		request:        r,
		draining:       draining,
		control:        http.NewResponseController(w),
		stall:          stall,
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &body{ReadCloser: r.Body, control: rw.control, stall: stall}
	}
	rw.extend()
	return rw
}

// Unwrap lets http.ResponseController reach the connection.
func (rw *response) Unwrap() http.ResponseWriter { return rw.ResponseWriter }

// route is the path pattern that was matched, "" for none.
func (rw *response) route() string {
	_, path, found := strings.Cut(rw.request.Pattern, "/")
	if !found {
		return ""
	}
	return "/" + path
}

func (rw *response) WriteHeader(status int) {
	if status >= 200 && rw.status == 0 {
		rw.status = status
		rw.finishHeader()
		rw.extend() // an answer without a body may come after long work
	}
	rw.ResponseWriter.WriteHeader(status)
}

func (rw *response) finishHeader() {
	h := rw.Header()
	if rw.request.Pattern == "" && strings.HasPrefix(rw.request.URL.Path, "/api/") {
		rw.discard = true // the mux's own 404 or 405, or a 500 before any route
		h.Del("Content-Type")
		h.Del("X-Content-Type-Options")
		h.Set("Content-Length", "0")
	}
	if rw.draining() {
		h.Set("Connection", "close")
	}
}

func (rw *response) Write(p []byte) (int, error) {
	if rw.status == 0 {
		rw.WriteHeader(http.StatusOK)
	}
	if rw.discard {
		return len(p), nil
	}
	rw.extend()
	n, err := rw.send(p)
	rw.written += int64(n)
	return n, err
}

// send writes p, so that its pieces leave together.
func (rw *response) send(p []byte) (int, error) {
	conn, ok := rw.request.Context().Value(connKey{}).(*boundedConn)
	if !ok || len(p) < httpBuffer/2 {
		return rw.ResponseWriter.Write(p)
	}
	conn.gather()
	n, err := rw.ResponseWriter.Write(p)
	if letGo := conn.letGo(); err == nil {
		err = letGo
	}
	return n, err
}

// Flush sends what was written so far.
func (rw *response) Flush() {
	if rw.status == 0 {
		rw.WriteHeader(http.StatusOK)
	}
	rw.extend()
	rw.control.Flush() // an error comes back from the next Write
}

// extend moves the write deadline, rarely, since most writes only fill a
// buffer. An error means that the connection is gone; Write will say so.
func (rw *response) extend() {
	now := time.Now()
	if rw.allowed.Sub(now) < rw.stall/2 {
		rw.allowed = now.Add(rw.stall)
		rw.control.SetWriteDeadline(rw.allowed)
	}
}

// A body is the body of a request that must keep coming.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
	allowed time.Time // read deadline
}

func (b *body) Read(p []byte) (int, error) {
	now := time.Now()
	if b.allowed.Sub(now) < b.stall/2 {
		b.allowed = now.Add(b.stall)
		b.control.SetReadDeadline(b.allowed)
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		// From here on net/http reads in the background to notice a client
		// that goes away. A deadline would look like one.
		b.control.SetReadDeadline(time.Time{})
		b.allowed = time.Time{}
	}
	return n, err
}
