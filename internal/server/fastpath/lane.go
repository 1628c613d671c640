package fastpath

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/stream"
)

// A lane is a connection and the requests that arrive on it, one after the other.
type lane struct {
	server  *Server
	conn    *stream.Conn
	wire    wire // of conn
	in      *bufio.Reader
	remote  string
	allowed time.Time   // read deadline that was set for the next request
	moved   atomic.Bool // a request has set another one since
	taken   atomic.Bool // the body of the request was read to its end
	ahead   bool        // the client had sent the request before the server looked for it

	client watch

	mu   sync.Mutex
	idle bool // waiting for a request
}

func newLane(s *Server, c *stream.Conn) *lane {
	w := newWire(c)
	l := &lane{server: s, conn: c, wire: w, in: bufio.NewReaderSize(w, maxHeader), remote: c.RemoteAddr().String()}
	l.client = watch{conn: c, taken: l.taken.Load}
	return l
}

// A wire reads and writes the bytes of a connection.
type wire interface {
	io.ReadWriter

	// writePieces writes pieces in order, if possible by one system call. It changes the list.
	writePieces(pieces ...[]byte) error

	// waited reports whether the last read waited for the client, or true if that is not known.
	waited() bool
}

// A connWire is a connection without special means.
type connWire struct{ *stream.Conn }

func (w connWire) waited() bool { return true }

func (w connWire) writePieces(pieces ...[]byte) error {
	var to io.Writer = w.Conn // with TLS, each piece is a record
	// The race detector does not see one call for all pieces as synchronization.
	if w.TLS() == nil && !detectsRaces {
		to = w.Conn.Conn // which can write all by one call
	}
	_, err := (*net.Buffers)(&pieces).WriteTo(to)
	return err
}

// blanks is how many bytes of empty lines before a request are skipped. RFC 9112, 2.2, asks for it;
// net/http does so after a POST only.
const blanks = 4

func (l *lane) serve(ctx context.Context) (unused []byte, handOver bool) {
	for patience, first := l.server.o.FirstTimeout, true; l.await(patience); patience, first = l.server.o.IdleTimeout, false {
		// A goroutine whose next request is already there lets others run first. Otherwise
		// thousands of such goroutines, each of which Go's scheduler lets run for up to 10 ms,
		// would delay others by many seconds. The first request of a connection is exempt: it has
		// usually arrived before the server looks for it.
		if l.ahead && !first {
			runtime.Gosched()
		}
		p, _ := l.in.Peek(l.in.Buffered())
		h, ok := plainHead(p)
		if !ok {
			return bytes.Clone(p), true
		}
		r, err := http.ReadRequest(l.in)
		if err != nil { // it is plain but invalid, for example a bad escape
			return bytes.Clone(p), true // still unchanged: with a complete header, nothing more is read
		}
		if !l.answer(ctx, r, h.last) || l.server.closing.Load() {
			break
		}
	}
	return nil, false
}

// await waits for the first byte of a request, and skips empty lines before it. It returns false if
// no request will come.
func (l *lane) await(patience time.Duration) bool {
	skip := blanks
	l.ahead = true
	if l.skipBlanks(&skip) {
		return true
	}
	l.setIdle(true)
	defer l.setIdle(false)
	// One deadline that is a little early costs less than a new one for each request.
	now := time.Now()
	if left := l.allowed.Sub(now); l.moved.Swap(false) || left < patience-patience/16 || left > patience {
		l.allowed = now.Add(patience)
		l.conn.SetReadDeadline(l.allowed)
	}
	if l.server.closing.Load() { // Shutdown may have looked before the deadline was set
		return false
	}
	for {
		if _, err := l.in.Peek(1); err != nil {
			return false
		}
		if l.wire.waited() {
			l.ahead = false
		}
		if l.skipBlanks(&skip) {
			return true
		}
	}
}

// skipBlanks discards at most skip bytes of empty lines from what has been read, and lowers skip by
// their number. It reports whether something else is next.
func (l *lane) skipBlanks(skip *int) bool {
	p, _ := l.in.Peek(l.in.Buffered())
	first := p[:min(*skip, len(p))]
	n := len(first) - len(bytes.TrimLeft(first, "\r\n"))
	l.in.Discard(n)
	*skip -= n
	return n < len(p)
}

func (l *lane) setIdle(idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = idle
}

// endIdle ends the wait for a request, if there is one. The lane's own goroutine closes the
// connection, because the closing alert of TLS may wait for a client that reads nothing.
func (l *lane) endIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle {
		l.conn.SetReadDeadline(time.Now())
	}
}

// answer answers r, and reports whether the connection continues.
func (l *lane) answer(ctx context.Context, r *http.Request, last bool) bool {
	l.conn.Busy()
	defer l.conn.Idle()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r = r.WithContext(ctx)
	r.RemoteAddr = l.remote
	l.taken.Store(r.ContentLength == 0)
	if r.ContentLength != 0 {
		r.Body = &body{r.Body, l}
	}
	a := newAnswer(l, last)
	defer a.release()
	l.client.begin(cancel, int64(l.in.Buffered()) <= r.ContentLength)
	l.server.watch()
	ok := l.handle(a, r)
	stays := l.client.end()
	if !ok {
		return false
	}
	if !stays {
		a.last = true // nobody would read the answers to further requests
	}
	keep := a.finish()
	if !l.taken.Load() {
		l.conn.Linger()
		return false
	}
	return keep
}

// handle runs the handler. It returns false if the handler gave up the answer.
func (l *lane) handle(a *answer, r *http.Request) (ok bool) {
	defer func() {
		if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
			l.server.o.Log.Error("a handler of HTTP panicked; this is a bug in Varve, please report it", "panic", fault, "stack", string(debug.Stack()))
		}
	}()
	l.server.o.Handler.ServeHTTP(a, r)
	return true
}

// A body is the body of a request. It notes its end.
type body struct {
	io.ReadCloser
	lane *lane
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.lane.taken.Store(true)
	}
	return n, err
}

// Close does not read the rest: the lane decides what happens to it.
func (b *body) Close() error { return nil }
