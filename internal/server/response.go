package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/auth"
	"varve/internal/clip"
	"varve/internal/httpapi"
	"varve/internal/stream"
)

// A response is the answer to one request on its way out. It remembers what
// was sent and keeps the connection's deadlines ahead of a client that reads.
type response struct {
	http.ResponseWriter
	request  *http.Request // the mux sets its Pattern before the handler runs
	origin   string        // for Access-Control-Allow-Origin; "" if none may read the answer
	body     *body         // of the request; nil if it has none
	meter    *stream.Meter // nil if it is not of HTTP/2
	status   int           // 0 until the header is written
	written  int64         // bytes of body
	discard  bool          // drop the body
	direct   bool          // answered by the server itself, without looking for a route
	instead  func() bool   // answers in place of an error of the handler, and reports whether it did; may be nil
	sender   string        // "" if it is not known
	told     bool          // the log already says why the request is refused
	why      []byte        // beginning of the body of a 403
	draining func() bool
	last     bool // the connection ends with this answer

	control *http.ResponseController
	stall   time.Duration
	allowed time.Time // write deadline

	mu    sync.Mutex
	fixed bool // a handler has set the write deadline; it stays
	over  bool // the handler has returned; the connection may have another request
}

// newResponse also puts the body of r under deadlines. Handlers get rw.request, a copy of r:
// net/http looks for its own body in r to find out whether a client still waits for 100 Continue.
func newResponse(w http.ResponseWriter, r *http.Request, stall time.Duration, draining func() bool) *response {
	rw := &response{
		ResponseWriter: w,
		request:        r,
		draining:       draining,
		control:        http.NewResponseController(w),
		stall:          stall,
		meter:          meterOf(r),
	}
	if r.Body != nil && r.Body != http.NoBody {
		rw.request = new(http.Request)
		*rw.request = *r
		rw.body = newBody(r, rw.control, stall)
		rw.body.meter = rw.meter
		if conn, ok := r.Context().Value(connKey{}).(*httpConn); ok {
			rw.body.arrival = &conn.arrival
			rw.body.arrival.begin()
		}
		rw.request.Body = rw.body
	}
	rw.extend()
	return rw
}

// watch cancels the request if its client leaves before stop is called. net/http alone notices
// only a client that has sent no byte after the request.
func (rw *response) watch() (stop func()) {
	c, ok := rw.request.Context().Value(connKey{}).(*httpConn)
	if !ok || c.watch == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(rw.request.Context())
	rw.request = rw.request.WithContext(ctx)
	unwatch := c.watch(c.Conn, func() bool { return rw.body == nil || rw.body.taken.Load() }, cancel)
	return func() { unwatch(); cancel() }
}

// Unwrap lets http.ResponseController reach the connection.
func (rw *response) Unwrap() http.ResponseWriter { return rw.ResponseWriter }

// SetWriteDeadline lets a handler, or a goroutine that ends its work, decide when writing fails.
// After that, bytes that the client accepts do not extend the deadline.
func (rw *response) SetWriteDeadline(t time.Time) error {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	if rw.over {
		return nil
	}
	rw.fixed = true
	return rw.control.SetWriteDeadline(t)
}

// route is the path pattern that was matched, "" for none.
func (rw *response) route() string {
	if at := strings.IndexByte(rw.request.Pattern, '/'); at >= 0 {
		return rw.request.Pattern[at:]
	}
	return ""
}

func (rw *response) WriteHeader(status int) {
	if status < 200 || rw.status != 0 {
		rw.ResponseWriter.WriteHeader(status)
		return
	}
	if instead := rw.instead; instead != nil && status >= http.StatusBadRequest {
		rw.instead = nil
		if instead() {
			rw.discard = true // the handler's own text
			return
		}
	}
	rw.status = status
	rw.settleBody()
	text := rw.finishHeader()
	rw.extend() // an answer without a body may come after long work
	rw.ResponseWriter.WriteHeader(status)
	if text != nil {
		n, _ := rw.ResponseWriter.Write(text)
		rw.written = int64(n)
	}
}

// refuse answers a request that reaches no handler.
func (rw *response) refuse(status int, message string) {
	text := httpapi.ErrorBody(message)
	h := rw.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	rw.direct = true
	rw.WriteHeader(status)
	rw.Write(text)
}

// EndOfRights implements [auth.Ender]: a pending Read of the request's body fails.
func (rw *response) EndOfRights() {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	if rw.body != nil && !rw.over {
		rw.body.cut.Store(true)
		rw.control.SetReadDeadline(time.Now())
	}
}

// release detaches the answer from other goroutines.
func (rw *response) release() {
	rw.mu.Lock()
	defer rw.mu.Unlock()
	rw.over = true
}

// settleBody reads the rest of the request's body before the answer begins, as net/http would, but
// for at most bodyRest. If there is more, the connection ends with this answer: the rest must not
// be taken for a request.
func (rw *response) settleBody() {
	if rw.body != nil && !rw.body.finish() {
		rw.Header().Set("Connection", "close")
	}
}

// finishHeader completes the header. If the mux answers, because no route matches, finishHeader
// returns the body to send: an error in JSON, but none below /api/, where KairosDB's Java client
// would leak a connection.
func (rw *response) finishHeader() (text []byte) {
	h := rw.Header()
	if rw.request.Pattern == "" && rw.status >= http.StatusBadRequest && !rw.direct {
		rw.discard = true // the mux's own 404 or 405, or a 500 before any route
		h.Del("Content-Type")
		if message := rw.noRoute(); message != "" {
			text = httpapi.ErrorBody(message)
			h.Set("Content-Type", "application/json")
			h.Del("Content-Length")
		} else {
			h.Set("Content-Length", "0")
		}
	}
	h["X-Content-Type-Options"] = noSniff
	if h["Content-Security-Policy"] == nil {
		h["Content-Security-Policy"] = noScripts
	}
	rw.allowOrigin(h)
	if rw.last || rw.draining() {
		h.Set("Connection", "close")
	}
	return text
}

// A browser must not take text that clients sent for a page. If it displays an answer nevertheless,
// the answer cannot run scripts, load anything or appear in a frame. Styles are allowed for SVG
// charts. All answers share the values; their capacity equals their length, so that Header.Add
// copies them.
var (
	noSniff   = []string{"nosniff"}
	noScripts = []string{"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
)

// noRoute says why no handler was found, "" if nothing should be said.
func (rw *response) noRoute() string {
	path := rw.request.URL.Path
	if strings.HasPrefix(path, "/api/") {
		return ""
	}
	switch rw.status {
	case http.StatusNotFound:
		return "there is no " + clip.Text(path, clipped) + "; GET / says what there is"
	case http.StatusMethodNotAllowed:
		return clip.Text(rw.request.Method, clipped) + " is not a method of " + clip.Text(path, clipped) + "; these are: " + rw.Header().Get("Allow")
	}
	return ""
}

// clipped is how many bytes of a client's text an answer repeats.
const clipped = 200

// pieceSize is how much of an answer is sent under one deadline. A client that accepts a piece
// within the deadline, half of stall_timeout or more, is served for as long as the answer takes.
const pieceSize = 64 << 10

func (rw *response) Write(p []byte) (n int, err error) {
	if rw.status == 0 {
		rw.WriteHeader(http.StatusOK)
	}
	if rw.discard {
		return len(p), nil
	}
	if rw.status == http.StatusForbidden && rw.why == nil {
		rw.why = []byte(clip.Text(p, whyBytes))
	}
	for {
		piece := p[n:min(len(p), n+pieceSize)]
		rw.extend()
		k, err := rw.ResponseWriter.Write(piece)
		rw.written += int64(k)
		rw.meter.Credit(k)
		if n += k; err != nil || n == len(p) {
			return n, err
		}
	}
}

// whyBytes is how much of the body of a 403 is written to the log.
const whyBytes = 500

// Flush sends what was written so far.
func (rw *response) Flush() {
	if rw.status == 0 {
		rw.WriteHeader(http.StatusOK)
	}
	rw.extend()
	rw.meter.Credit(flushCredit)
	rw.control.Flush() // an error comes back from the next Write
}

// extend moves the write deadline, though seldom, since most writes only fill a buffer. An error
// means that the connection is gone; Write will report it.
func (rw *response) extend() {
	now := time.Now()
	if rw.allowed.Sub(now) >= rw.stall/2 {
		return
	}
	rw.mu.Lock()
	defer rw.mu.Unlock()
	if !rw.fixed {
		rw.allowed = now.Add(rw.stall)
		rw.control.SetWriteDeadline(rw.allowed)
	}
}

// Limits on how long a request's body may take.
const (
	// bodyRate is how many bytes per second a client must send on average, once it has used up
	// bodyPatience times stall_timeout by sending less.
	bodyRate     = 1 << 10
	bodyPatience = 5

	// bodyRest and bodyRestSize bound the reading of a body that the handler
	// did not read to its end.
	bodyRest     = time.Second
	bodyRestSize = 256 << 10
)

// A body is the body of a request, which must keep arriving. Each read has a deadline, and all
// reads together have a budget of time that grows with the bytes that arrive. Time between reads
// does not count. Two goroutines must not use Read and finish at once.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	arrival *arrival // nil in tests without a listener
	meter   *stream.Meter
	stall   time.Duration
	left    time.Duration // that further reads may wait
	allowed time.Time     // read deadline
	waits   bool          // the client waits for 100 Continue before it sends
	ended   bool
	taken   atomic.Bool // ended, for other goroutines
	failed  bool
	evicted bool        // the connection was closed for a new one
	cut     atomic.Bool // the sender has lost its rights
}

func newBody(r *http.Request, control *http.ResponseController, stall time.Duration) *body {
	return &body{
		ReadCloser: r.Body, control: control, stall: stall, left: bodyPatience * stall,
		waits: strings.EqualFold(r.Header.Get("Expect"), "100-continue"),
	}
}

func (b *body) Read(p []byte) (int, error) {
	if b.ended || b.failed {
		return b.ReadCloser.Read(p) // says why
	}
	if b.cut.Load() { // even if more has arrived, which would extend the deadline
		b.failed = true
		return 0, auth.ErrEnded
	}
	b.waits = false
	now := time.Now()
	if most := min(b.stall, b.left); b.allowed.Sub(now) < most/2 {
		b.allow(now.Add(most))
	}
	n, err := b.read(p, now)
	b.left += time.Duration(n)*time.Second/bodyRate - time.Since(now)
	b.left = min(b.left, bodyPatience*b.stall)
	switch {
	case err == io.EOF:
		// From here on net/http reads in the background to notice a client
		// that leaves. It would take an expired deadline for such a client.
		b.ended = true
		b.taken.Store(true)
		b.allow(time.Time{})
	case err != nil:
		b.failed = true // the deadline stays, because net/http continues to read
	}
	return n, err
}

// errEvicted ends a request whose connection was closed for a new one.
var errEvicted = errors.New("the connection was closed to make room for a new one (server.max_connections): its request body arrived too slowly")

func (b *body) read(p []byte, now time.Time) (int, error) {
	if b.arrival == nil {
		n, err := b.ReadCloser.Read(p)
		b.meter.Credit(readCredit(n))
		return n, err
	}
	b.arrival.wait(now)
	n, err := b.ReadCloser.Read(p)
	if !b.arrival.got(n, time.Now()) {
		b.evicted = true
		return n, errEvicted
	}
	return n, err
}

func (b *body) allow(t time.Time) {
	b.allowed = t
	b.control.SetReadDeadline(t)
}

// finish reads the rest of the body within the limits and reports whether it reached the end. If
// not, net/http finds an expired deadline when it looks for the rest.
func (b *body) finish() bool {
	if b.ended {
		return true
	}
	if !b.failed && !b.waits {
		b.left = min(b.left, bodyRest)
		b.allow(time.Now().Add(b.left))
		io.CopyN(io.Discard, b, bodyRestSize+1)
	}
	if !b.ended {
		b.failed = true
		b.allow(time.Now())
	}
	return b.ended
}
