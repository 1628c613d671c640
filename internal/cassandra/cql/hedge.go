package cql

import (
	"context"
	"errors"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/work"
)

// A read whose coordinator takes unusually long is also sent to another replica (hedged),
// and the first answer counts. Cassandra itself asks another replica if a coordinator
// waits for one (speculative_retry), but that does not help if the coordinator itself is
// slow, because of a garbage collection or a failing disk.
//
// The driver's speculative execution is not used. There the first result counts even if
// it is an error, for example that there is no further node; and the driver requests a
// second node while the first one works, which [choice] would take for the end of the
// first attempt.
//
// What bounds the load: a read is hedged once in each attempt; all hedges together are at
// most hedgeShare of the reads; only a replica that has room and answers is asked, and
// only if there is room in flight. A node that loses against a hedge is passed over for
// slowFor, like a node at its limit: so a node that stays slow costs one hedge a second,
// not one for each third read.
const (
	hedgeShare    = 0.05 // of reads
	hedgeBurst    = 32   // hedges at once after a quiet time: as many as a query reads ahead
	hedgeMultiple = 2    // of the time in which 9 of 10 reads of the statement are answered
	slowFor       = time.Second
)

// errHedged ends the attempt whose answer is no longer needed.
var errHedged = errors.New("another replica has answered")

// hedging decides when and how often reads are hedged.
type hedging struct {
	least time.Duration // hedge_after; 0 is never

	mu     sync.Mutex
	credit float64 // hedges that may be sent
	usual  map[string]time.Duration
}

func newHedging(least time.Duration) *hedging {
	return &hedging{least: least, credit: hedgeBurst, usual: make(map[string]time.Duration)}
}

// usualFirst is assumed for a statement that was not executed yet.
const usualFirst = 50 * time.Millisecond

// after counts a read of a statement, and returns when it is to be hedged; 0 is never.
func (h *hedging) after(statement string) time.Duration {
	if h.least == 0 {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.credit = min(h.credit+hedgeShare, hedgeBurst)
	usual, known := h.usual[statement]
	if !known {
		usual = usualFirst
	}
	return max(h.least, hedgeMultiple*usual)
}

// learn moves the time in which 9 of 10 reads are answered: up by nine parts after a read
// that took longer, down by one part after any other, so that it settles where one read in
// ten takes longer.
func (h *hedging) learn(statement string, took time.Duration) {
	const up, down = 1 + 0.045, 1 - 0.005
	h.mu.Lock()
	defer h.mu.Unlock()
	usual, known := h.usual[statement]
	switch {
	case !known:
		usual = min(took, usualFirst)
	case took > usual:
		usual = time.Duration(float64(usual) * up)
	default:
		usual = time.Duration(float64(usual) * down)
	}
	h.usual[statement] = min(max(usual, time.Millisecond/4), time.Minute)
}

// take takes the credit of a hedge, if there is any.
func (h *hedging) take() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.credit < 1 {
		return false
	}
	h.credit--
	return true
}

// giveBack gives back the credit of a hedge that was not sent.
func (h *hedging) giveBack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.credit = min(h.credit+1, hedgeBurst)
}

// A hedge is the second way of one attempt.
type hedge struct {
	session *Session
	st      *Statement
	size    int
	first   *attempt
	f       func(context.Context, *gocql.Session) error
	timeout time.Duration // of the second way: what is left of the attempt's

	ctx    context.Context // of the second way
	stop   context.CancelCauseFunc
	settle context.CancelCauseFunc // ends the first way

	mu    sync.Mutex
	ended bool          // of the first way: the second is not begun any more
	done  chan struct{} // closed when the second way has ended; nil before it has begun
	err   error         // of the second way
}

// hedged runs f as attempt does, and a second time beside it at another replica if it takes
// unusually long. f may run twice at once, and both may succeed.
func (s *Session) hedged(ctx context.Context, st *Statement, a *attempt, size int, timeout time.Duration, f func(context.Context, *gocql.Session) error) error {
	began := s.now()
	after := s.hedging.after(st.Name)
	if after == 0 || after >= timeout {
		return s.attempt(ctx, a, timeout, f)
	}
	h := &hedge{session: s, st: st, size: size, first: a, f: f, timeout: timeout - after}
	firstCtx, settle := context.WithCancelCause(ctx)
	defer settle(nil)
	h.settle = settle
	h.ctx, h.stop = context.WithCancelCause(ctx)
	defer h.stop(errHedged)
	timer := time.AfterFunc(after, h.begin)
	err := s.attempt(firstCtx, a, timeout, f)
	timer.Stop()
	if err = h.settled(ctx, err); err == nil {
		s.hedging.learn(st.Name, s.now().Sub(began))
	}
	return err
}

// begin begins the second way in the background, unless the first has ended or there is no
// room.
func (h *hedge) begin() {
	s := h.session
	h.mu.Lock()
	defer h.mu.Unlock()
	id, _ := h.first.node()
	if h.ended || id == "" {
		return
	}
	if !s.hedging.take() {
		s.metrics.hedges.WithLabelValues("withheld").Inc()
		return
	}
	if !s.limiters[reads].tryAcquire(h.size) {
		s.hedging.giveBack()
		s.metrics.hedges.WithLabelValues("withheld").Inc()
		return
	}
	done := make(chan struct{})
	if s.spawn(func() { h.run(id, done) }) {
		h.done = done
		return
	}
	s.limiters[reads].release(h.size)
}

// run asks another replica than the node called id.
func (h *hedge) run(id string, done chan struct{}) {
	s := h.session
	defer close(done)
	defer s.limiters[reads].release(h.size)
	a := &attempt{statement: h.st.Name, kind: reads, avoid: id, hedge: true}
	err := work.Do("ask another replica", func() error { return s.attempt(h.ctx, a, h.timeout, h.f) })
	to, _ := a.node()
	result := "won"
	h.mu.Lock()
	h.err = err
	switch {
	case to == "":
		result = "withheld" // no other replica has room
		s.hedging.giveBack()
	case h.ended && (err == nil || errors.Is(context.Cause(h.ctx), errHedged)):
		result = "lost"
	case err != nil:
		result = "failed"
	}
	h.mu.Unlock()
	s.metrics.hedges.WithLabelValues(result).Inc()
	if result == "won" {
		h.settle(errHedged)
		s.slow(id)
	}
}

// settled returns the outcome of both ways, when the first has ended with err.
func (h *hedge) settled(ctx context.Context, err error) error {
	h.mu.Lock()
	final := err == nil || classify(ctx, err) == classRefused || ctx.Err() != nil
	h.ended = h.ended || final || h.done == nil
	done, ended := h.done, h.ended
	h.mu.Unlock()
	if ended || done == nil {
		return err
	}
	<-done // the second way may do; it has a time limit, and ctx ends it
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return nil
	}
	return err
}

// slow has a node passed over for a moment, and probed: its reads do not show whether it
// lives, because another node's answer was taken.
func (s *Session) slow(id string) {
	c, err := s.connection()
	if err != nil {
		return
	}
	c.hosts.slow(id)
	s.probe(c, s.config.StallAfter/4)
}
