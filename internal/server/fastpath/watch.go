package fastpath

import (
	"context"
	"sync"
	"time"

	"varve/internal/stream"
)

// watchPause is the time between two checks of the clients of long requests.
const watchPause = 100 * time.Millisecond

// endedPatience is how long a request may still take once its client has closed its sending
// direction and left unread bytes. These may be further requests of a client that waits for all
// answers, such as nc. They may also serve only to hide that the client has left.
const endedPatience = 2 * time.Second

// A watch cancels a request whose client has left.
type watch struct {
	conn  *stream.Conn
	taken func() bool // reports whether the body of the request was read to its end

	mu     sync.Mutex
	since  time.Time          // when the request that is being answered arrived
	ended  time.Time          // when its client was first seen to send no more; zero if it may send
	cancel context.CancelFunc // of that request; nil between requests
	peeks  bool               // nothing behind the request was read, and nobody reads while it is answered
	gone   bool               // the request was cancelled
}

// begin records that a request is being answered. peeks says that the next byte of the socket, if
// there is one, is the first behind the request, and that nobody reads it meanwhile.
func (w *watch) begin(cancel context.CancelFunc, peeks bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.ended, w.cancel, w.peeks = time.Now(), time.Time{}, cancel, peeks
}

// end records that the answer is complete, and reports whether the client is still there.
func (w *watch) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel = nil
	return !w.gone
}

// look cancels the request of a client that has left, and reports whether there is a request.
func (w *watch) look(now time.Time) (busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel == nil {
		return false
	}
	// While the body is read, its reader notices.
	if w.taken() && now.Sub(w.since) >= watchPause/2 && w.left(now) {
		w.gone = true
		w.cancel()
	}
	return true
}

// left reports whether the client has left.
func (w *watch) left(now time.Time) bool {
	switch {
	case w.peeks && hasLeft(w.conn):
		return true
	case !hasEnded(w.conn):
		return false
	case w.ended.IsZero():
		w.ended = now
	}
	return now.Sub(w.ended) >= endedPatience
}

// Watch calls cancel if the client of c leaves before stop is called. It is for connections that
// were handed over: their reader notices a client that leaves, but only if the client has sent no
// byte after its request.
func (s *Server) Watch(c *stream.Conn, taken func() bool, cancel context.CancelFunc) (stop func()) {
	w := &watch{conn: c, taken: taken}
	w.begin(cancel, false)
	s.mu.Lock()
	s.mu.watches[w] = struct{}{}
	s.mu.Unlock()
	s.watch()
	return func() {
		w.end()
		s.mu.Lock()
		delete(s.mu.watches, w)
		s.mu.Unlock()
	}
}

// watch makes sure that look runs soon. While look is scheduled anyway, this costs a request
// nothing.
func (s *Server) watch() {
	if !s.watching.Load() && s.watching.CompareAndSwap(false, true) {
		time.AfterFunc(watchPause, s.look)
	}
}

// look cancels requests whose clients have left.
func (s *Server) look() {
	s.watching.Store(false)
	s.mu.Lock()
	watches := make([]*watch, 0, len(s.mu.lanes)+len(s.mu.watches))
	for l := range s.mu.lanes {
		watches = append(watches, &l.client)
	}
	for w := range s.mu.watches {
		watches = append(watches, w)
	}
	s.mu.Unlock()
	now, busy := time.Now(), false
	for _, w := range watches {
		busy = w.look(now) || busy
	}
	if busy {
		s.watch()
	}
}
