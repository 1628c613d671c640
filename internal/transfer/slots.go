package transfer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"varve/internal/gate"
	"varve/internal/principal"
	"varve/internal/units"
)

const (
	// silence is how long a read may wait for a client while others wait for its slot.
	silence = 10 * time.Second

	// unread is how long a write may wait for a client while others wait for its slot.
	// It is longer than silence, because the system's buffers hide what the client reads:
	// behind 2.5 MB of them, a client that reads 64 KB/s unblocks a write every 13 s.
	unread = 30 * time.Second

	// turn is how long a transfer keeps its slot even if its client is slow, but not
	// silent.
	turn = time.Minute

	// slowRate is the number of bytes per second below which a client loses its slot
	// after its turn, if others wait for it.
	slowRate = 256 * units.KiB

	// slotWait is how long a request waits for a slot that another one was told to
	// give up.
	slotWait = 5 * time.Second
)

// A yieldedError ends a transfer that gave its slot to another one.
type yieldedError struct {
	bytes  int64
	in     time.Duration
	least  units.Bytes
	silent bool // the client transferred nothing for the time in; bytes and least are not set
}

func (e *yieldedError) Error() string {
	if e.silent {
		return fmt.Sprintf("the client transferred nothing for %s, and others wait for the slot", e.in.Round(time.Second))
	}
	return fmt.Sprintf("the client transferred %d bytes in %s, less than %s a second, and others wait for the slot",
		e.bytes, e.in.Round(time.Second), e.least)
}

// A slot is the right of a transfer to run. It counts the bytes that the client transfers,
// and how long the transfer waits for the client.
type slot struct {
	sender  netip.Prefix
	now     func() time.Time
	turn    time.Duration
	enough  units.Bytes // bytes per second at which a client is not slow
	control *http.ResponseController

	mu      sync.Mutex
	yielded *yieldedError // set once the transfer has to end
	left    bool          // the request has ended; the connection may serve another one
	blocked time.Time     // when the pending read or write began; zero if there is none
	writing bool          // the pending operation is a write
	moved   int64         // bytes
	waited  time.Duration
	marks   [2]mark // the beginnings of this turn and of the previous one
}

// A mark is the counters of a slot at some time.
type mark struct {
	at     time.Time
	moved  int64
	waited time.Duration
}

func newSlot(now func() time.Time, turn time.Duration, enough units.Bytes, w http.ResponseWriter) *slot {
	begun := mark{at: now()}
	return &slot{now: now, turn: turn, enough: enough, control: http.NewResponseController(w), marks: [2]mark{begun, begun}}
}

// wait runs move, a read from the client or a write to it, and counts its bytes and
// its time.
func (s *slot) wait(writing bool, move func() (int, error)) (int, error) {
	s.mu.Lock()
	if s.yielded != nil {
		if !writing {
			s.control.SetReadDeadline(time.Now()) // otherwise net/http would wait for the rest of the body
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

// slow reports whether the client is silent, or whether the transfer waited for it at
// least half of the last one or two turns, and it transferred less than enough. rate is
// in bytes per second.
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

// silentLocked returns how long the pending read or write has waited for the client, and
// whether that is too long. s.mu must be held.
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

// yieldUntil ends the transfer repeatedly until ctx ends, because a read or write that was about to
// begin sets its own deadline.
func (s *slot) yieldUntil(ctx context.Context) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		s.yield()
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// yield ends the transfer, including a pending read or write.
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

// gaveUp returns why the transfer had to give up its slot, nil if it did not have to.
func (s *slot) gaveUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.yielded == nil {
		return nil
	}
	return s.yielded
}

// slots limits the transfers that run at once. If no slot is free, a request takes the
// slot of the slowest client, provided that client is slow. One sender cannot have all slots: the last
// free one is for a sender that has none.
type slots struct {
	now   func() time.Time
	turn  time.Duration
	rate  units.Bytes // see slowRate
	used  *gate.Gate
	mu    sync.Mutex
	taken map[*slot]struct{}
}

func newSlots(n int) *slots {
	return &slots{now: time.Now, turn: turn, rate: slowRate, used: gate.NewReserving(int64(n), min(1, int64(n)/2)), taken: map[*slot]struct{}{}}
}

// enter takes a slot for a request, until the returned function is called. The slot
// counts what goes through the returned writer and the body of the returned request.
// Without a slot, all results are nil.
func (all *slots) enter(w http.ResponseWriter, r *http.Request) (*slotWriter, *http.Request, func()) {
	sender := principal.NetworkOf(r.RemoteAddr)
	if !all.take(r.Context(), sender) {
		return nil, nil, nil
	}
	s := newSlot(all.now, all.turn, all.rate, w)
	s.sender = sender
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
		all.used.Leave(sender, 1)
	}
}

func (all *slots) take(ctx context.Context, sender netip.Prefix) bool {
	if all.used.TryEnter(sender, 1) {
		return true
	}
	slow := all.slowest(sender)
	if slow == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	var yields sync.WaitGroup
	defer yields.Wait()
	defer cancel()
	yields.Go(func() { slow.yieldUntil(ctx) })
	_, _, err := all.used.Enter(ctx, sender, 1)
	return err == nil
}

// slowest returns the slot of the slowest client, nil if no client is slow. It leaves a slot to its client
// if sender could not take it, because it would be the last free one.
func (all *slots) slowest(sender netip.Prefix) (slowest *slot) {
	all.mu.Lock()
	defer all.mu.Unlock()
	var least float64
	for s := range all.taken {
		if s.gaveUp() != nil || !all.used.Helps(s.sender, sender, 1) {
			continue // another request waits for this slot, or would get it
		}
		if rate, slow := s.slow(); slow && (slowest == nil || rate < least) {
			slowest, least = s, rate
		}
	}
	return slowest
}

// A slotWriter writes the answer of a transfer.
type slotWriter struct {
	http.ResponseWriter
	slot *slot
}

// Write writes in pieces, so that a client that reads slowly is not considered silent.
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
