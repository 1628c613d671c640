package transfer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"varve/internal/units"
)

const (
	// silence is for how long a client may send nothing while others wait.
	silence = 10 * time.Second

	// unread is for how long nothing can be written to a client while others wait.
	// The system's buffers hide what the client takes: beside 2.5 MB of them, a
	// client that reads 64 KB/s lets a write go on every 13 s.
	unread = 30 * time.Second

	// turn is how long a transfer whose client moves a little has its slot for
	// certain.
	turn = time.Minute

	// slowRate is what a client has to move a second to keep its slot longer
	// while others wait.
	slowRate = 256 * units.KiB

	// slotWait is how long a request waits for a slot that another one gives up.
	slotWait = 5 * time.Second
)

// A yieldedError ends a transfer that gave its slot to another one.
type yieldedError struct {
	bytes  int64
	in     time.Duration
	least  units.Bytes
	silent bool // the client moved nothing at all, for in
}

func (e *yieldedError) Error() string {
	if e.silent {
		return fmt.Sprintf("the client sent and took nothing for %s, and others wait for the slot", e.in.Round(time.Second))
	}
	return fmt.Sprintf("the client moved %d bytes in %s, less than %s a second, and others wait for the slot",
		e.bytes, e.in.Round(time.Second), e.least)
}

// A slot is the right of a transfer to run. It counts what the client moves, and how long
// the transfer waits for it.
type slot struct {
	now     func() time.Time
	turn    time.Duration
	enough  units.Bytes // that a client moves a second
	control *http.ResponseController

	mu      sync.Mutex
	yielded *yieldedError // set when the transfer has to end
	left    bool          // the connection may have another request
	blocked time.Time     // since when the client is waited for; zero if it is not
	writing bool          // what is blocked is a write
	moved   int64
	waited  time.Duration
	marks   [2]mark // the beginnings of this turn and of the one before
}

// A mark is what a slot had counted at some time.
type mark struct {
	at     time.Time
	moved  int64
	waited time.Duration
}

func newSlot(now func() time.Time, turn time.Duration, enough units.Bytes, w http.ResponseWriter) *slot {
	begun := mark{at: now()}
	return &slot{now: now, turn: turn, enough: enough, control: http.NewResponseController(w), marks: [2]mark{begun, begun}}
}

// wait surrounds a read from the client or a write to it.
func (s *slot) wait(writing bool, move func() (int, error)) (int, error) {
	s.mu.Lock()
	if s.yielded != nil {
		if !writing {
			s.control.SetReadDeadline(time.Now()) // net/http would wait for the rest of the body
		}
		s.mu.Unlock()
		return 0, s.yielded
	}
	s.blocked, s.writing = s.now(), writing
	s.mu.Unlock()
	n, err := move()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.moved += int64(n)
	s.waited += now.Sub(s.blocked)
	s.blocked = time.Time{}
	if now.Sub(s.marks[0].at) >= s.turn {
		s.marks[1], s.marks[0] = s.marks[0], mark{now, s.moved, s.waited}
	}
	if err != nil && err != io.EOF && s.yielded != nil {
		err = s.yielded
	}
	return n, err
}

// slow reports that the client has moved nothing for long, or that it was waited for
// most of a turn or two and moved little. rate is its bytes a second.
func (s *slot) slow() (rate float64, slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, silent := s.silentLocked(); silent {
		return 0, true
	}
	now, from := s.now(), s.marks[1]
	elapsed, waited := now.Sub(from.at), s.waited-from.waited
	if !s.blocked.IsZero() {
		waited += now.Sub(s.blocked)
	}
	rate = float64(s.moved-from.moved) / elapsed.Seconds()
	return rate, elapsed >= s.turn && waited >= elapsed/2 && rate < float64(s.enough)
}

// silentLocked returns for how long the client moves nothing now, and whether that is
// too long. s.mu must be held.
func (s *slot) silentLocked() (since time.Duration, silent bool) {
	if s.blocked.IsZero() {
		return 0, false
	}
	most := silence
	if s.writing {
		most = unread
	}
	since = s.now().Sub(s.blocked)
	return since, since >= most
}

// yield ends the transfer, also where it waits for its client. It may be called
// again, since a read or write that was about to begin sets its own deadline.
func (s *slot) yield() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.yielded == nil {
		s.yielded = &yieldedError{bytes: s.moved - s.marks[1].moved, in: s.now().Sub(s.marks[1].at), least: s.enough}
		if since, silent := s.silentLocked(); silent {
			s.yielded = &yieldedError{in: since, silent: true}
		}
	}
	switch {
	case s.left, s.blocked.IsZero():
	case s.writing:
		s.control.SetWriteDeadline(time.Now())
	default: // the answer can still be written
		s.control.SetReadDeadline(time.Now())
	}
}

func (s *slot) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
}

// gaveUp is why the transfer had to end, nil if it had not.
func (s *slot) gaveUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.yielded == nil {
		return nil
	}
	return s.yielded
}

// slots bounds how many transfers run. A request that finds none free takes that
// of the slowest client.
type slots struct {
	now   func() time.Time
	turn  time.Duration
	rate  units.Bytes   // see slowRate
	free  chan struct{} // holds one element for each transfer that runs
	mu    sync.Mutex
	taken map[*slot]struct{}
}

func newSlots(n int) *slots {
	return &slots{now: time.Now, turn: turn, rate: slowRate, free: make(chan struct{}, n), taken: map[*slot]struct{}{}}
}

// enter takes a slot for a request, whose writer and body then count, until leave
// is called. Without a slot it returns nil.
func (all *slots) enter(w http.ResponseWriter, r *http.Request) (*slotWriter, *http.Request, func()) {
	if !all.take(r.Context()) {
		return nil, nil, nil
	}
	s := newSlot(all.now, all.turn, all.rate, w)
	all.mu.Lock()
	all.taken[s] = struct{}{}
	all.mu.Unlock()
	r = r.WithContext(r.Context()) // a copy: net/http looks for its own body
	r.Body = slotBody{r.Body, s}
	return &slotWriter{w, s}, r, func() {
		all.mu.Lock()
		delete(all.taken, s)
		all.mu.Unlock()
		s.leave()
		<-all.free
	}
}

func (all *slots) take(ctx context.Context) bool {
	select {
	case all.free <- struct{}{}:
		return true
	default:
	}
	slow := all.slowest()
	if slow == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		slow.yield()
		select {
		case all.free <- struct{}{}:
			return true
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
}

// slowest is the transfer of the slowest client, nil if none is slow.
func (all *slots) slowest() (slowest *slot) {
	all.mu.Lock()
	defer all.mu.Unlock()
	var least float64
	for s := range all.taken {
		if s.gaveUp() != nil {
			continue // its slot is another request's
		}
		if rate, slow := s.slow(); slow && (slowest == nil || rate < least) {
			slowest, least = s, rate
		}
	}
	return slowest
}

// A slotWriter is the answer of a transfer.
type slotWriter struct {
	http.ResponseWriter
	slot *slot
}

// Write writes in pieces: a client that takes one now and then is not silent.
func (w *slotWriter) Write(p []byte) (n int, err error) {
	for {
		piece := p[n:min(len(p), n+writeBytes)]
		k, err := w.slot.wait(true, func() (int, error) { return w.ResponseWriter.Write(piece) })
		if n += k; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *slotWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type slotBody struct {
	io.ReadCloser
	slot *slot
}

func (b slotBody) Read(p []byte) (int, error) {
	return b.slot.wait(false, func() (int, error) { return b.ReadCloser.Read(p) })
}
