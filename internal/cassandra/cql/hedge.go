package cql

import (
	"context"
	"errors"
	"sync"
	"time"

	"varve/internal/work"
)

// A read whose coordinator takes unusually long is also sent to another replica (hedged), and
// the first answer is used. Cassandra itself reads from another replica if a coordinator waits
// for one (speculative_retry), but that does not help if the coordinator itself is slow,
// because of a garbage collection or a failing disk.
//
// The driver's speculative execution is not used, for two reasons. It uses the first result
// even if that is an error, for example that there is no further node. And the driver requests
// a second node while the first one is working, which [choice] would interpret as the end of
// the first attempt.
//
// The additional load is bounded: each attempt of a read is hedged at most once; all hedges
// together are at most hedgeShare of the reads; a hedge is only sent to a replica that answers
// and is below its limit, and only if the limit of statements in flight permits. A node that
// loses against a hedge is avoided for slowFor, so that it causes one hedge per second at most.
const (
	hedgeShare    = 0.05 // of reads
	hedgeBurst    = 32   // concurrent hedges after a quiet time: as many as a query reads ahead
	hedgeMultiple = 2    // multiple of the time in which 9 of 10 reads of the statement are answered
	slowFor       = time.Second
)

// errHedged ends the attempt whose answer is no longer needed.
var errHedged = errors.New("another replica has answered")

// hedging decides when and how often reads are hedged.
type hedging struct {
	least time.Duration // hedge_after; 0 means never

	mu     sync.Mutex
	credit float64 // number of hedges that may be sent
	usual  map[string]time.Duration
}

func newHedging(least time.Duration) *hedging {
	return &hedging{least: least, credit: hedgeBurst, usual: make(map[string]time.Duration)}
}

// usualFirst is the assumed usual time of a statement that was not executed yet.
const usualFirst = 50 * time.Millisecond

// after counts a read of a statement, and returns the time after which to hedge it; 0 means
// never.
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

// learn adjusts the estimate of the time in which 9 of 10 reads are answered: up by nine parts
// after a read that took longer, down by one part after any other, so that it converges to the
// time that one read in ten exceeds.
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

// take takes the credit for a hedge, and reports whether there was any.
func (h *hedging) take() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.credit < 1 {
		return false
	}
	h.credit--
	return true
}

// refund returns the credit for a hedge that was not sent.
func (h *hedging) refund() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.credit = min(h.credit+1, hedgeBurst)
}

// A hedge is the second run of one attempt, at another replica.
type hedge struct {
	session *Session
	call    call
	first   *attempt
	timeout time.Duration // of the second run: the rest of the attempt's timeout

	ctx    context.Context // of the second run
	stop   context.CancelCauseFunc
	settle context.CancelCauseFunc // ends the first run

	mu    sync.Mutex
	ended bool          // the first run has ended, so the second must not begin
	done  chan struct{} // closed when the second run has ended; nil before it has begun
	err   error         // of the second run
}

// hedged makes an attempt of a read and, if that takes unusually long, concurrently a second one
// at another replica. Both may succeed.
func (s *Session) hedged(ctx context.Context, c call, a *attempt) error {
	began := s.now()
	after := s.hedging.after(c.st.Name)
	if after == 0 || after >= c.timeout {
		return s.attempt(ctx, a, c.timeout, c.run)
	}
	h := &hedge{session: s, call: c, first: a, timeout: c.timeout - after}
	firstCtx, settle := context.WithCancelCause(ctx)
	defer settle(nil)
	h.settle = settle
	h.ctx, h.stop = context.WithCancelCause(ctx)
	defer h.stop(errHedged)
	timer := time.AfterFunc(after, h.begin)
	err := s.attempt(firstCtx, a, c.timeout, c.run)
	timer.Stop()
	if err = h.settled(ctx, err); err == nil {
		s.hedging.learn(c.st.Name, s.now().Sub(began))
	}
	return err
}

// begin begins the second run in the background, unless the first has ended, the caller has left, or
// no further statement may be in flight.
func (h *hedge) begin() {
	s := h.session
	h.mu.Lock()
	defer h.mu.Unlock()
	id, _ := h.first.node()
	if h.ended || h.call.gone() != nil || id == "" {
		return
	}
	may := s.hedging.take()
	if may && !s.limiters[reads].tryAcquire(h.call.size) {
		s.hedging.refund()
		may = false
	}
	if !may {
		s.metrics.hedges.WithLabelValues("withheld").Inc()
		return
	}
	done := make(chan struct{})
	if s.spawn(func() { h.run(id, done) }) {
		h.done = done
		return
	}
	s.limiters[reads].release(h.call.size)
}

// run sends the read to a replica other than the node with the given id.
func (h *hedge) run(id string, done chan struct{}) {
	s := h.session
	defer close(done)
	defer s.limiters[reads].release(h.call.size)
	a := &attempt{statement: h.call.st.Name, kind: reads, avoid: id, hedge: true}
	err := work.Do("ask another replica", func() error { return s.attempt(h.ctx, a, h.timeout, h.call.run) })
	to, _ := a.node()
	result := "won"
	h.mu.Lock()
	h.err = err
	switch {
	case to == "":
		result = "withheld" // all other replicas are at their limit
		s.hedging.refund()
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

// settled returns the result of both runs after the first has ended with err.
func (h *hedge) settled(ctx context.Context, err error) error {
	h.mu.Lock()
	final := err == nil || classify(ctx, err) == classRefused || ctx.Err() != nil
	h.ended = h.ended || final || h.done == nil
	done, ended := h.done, h.ended
	h.mu.Unlock()
	if ended || done == nil {
		return err
	}
	<-done // the second run may succeed; its timeout and ctx bound the wait
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		return nil
	}
	return err
}

// slow makes reads avoid a node for a moment, and probes the node: the abandoned read does not
// show whether it is alive.
func (s *Session) slow(id string) {
	c, err := s.connection()
	if err != nil {
		return
	}
	c.hosts.slow(id)
	s.probe(c, s.config.StallAfter/4)
}
