package query

import (
	"errors"
	"io"
	"math"
	"net/netip"
	"runtime"
	"time"

	"varve/internal/principal"
)

const (
	// turnTime is how long a query computes before a waiting query gets a turn.
	turnTime = 20 * time.Millisecond

	// longTime is how long a query computes before queries that have computed for less time get
	// slots ahead of it.
	longTime = time.Second

	// sliceTime is how long a query computes before other goroutines run, while there are
	// other queries.
	sliceTime = time.Millisecond

	// clientTime is how long a query keeps its slot while it waits for its client.
	clientTime = 20 * time.Millisecond
)

// Yield gives the slot of a query that has had it for turnTime to a query that
// waits to begin, and waits for the next turn. So a short query does not wait until
// long ones end. The goroutine of the session calls Yield between two steps of its work.
// Then, or if nobody of its tenant waits, it lets the queries of other tenants compute.
// While more than half of query.total_memory is used, one query at most waits for its
// next turn, and none while others wait for memory: those that wait hold memory, and new
// queries would need more.
func (s *Session) Yield() error {
	if !s.Due() {
		return nil
	}
	return s.yieldTurn()
}

// yieldTurn is Yield once a turn is due. The queries that waited at that time may have got their turn since.
func (s *Session) yieldTurn() (err error) {
	e := s.engine
	if e.queued.Load() == 0 {
		if !e.slots.all.due() {
			return nil
		}
		s.use()
		err := e.slots.all.pause(s.ctx)
		s.turn = time.Now()
		return err
	}
	most := math.MaxInt
	switch {
	case e.pool.waited():
		most = 0
	case e.pool.inUse() > e.pool.max/2:
		most = 1
	}
	e.wait(+1)
	defer e.wait(-1)
	id := s.nextLine()
	var patience time.Duration // later turns are not refused
	if id != 0 && !s.settled {
		patience = s.config.MaxWait
	}
	s.use()
	stood, err := e.slots.yield(s.ctx, s.sender(), id, most, patience, s.long())
	s.settled = s.settled || stood && id != 0
	s.outside, s.turn = err != nil, time.Now()
	if err == nil && e.slots.all.due() {
		err = e.slots.all.pause(s.ctx)
		s.turn = time.Now()
	}
	if errors.Is(err, errCongested) {
		return s.config.congested("a query waits for its third turn", "ask for less: coarser sampling, a shorter time, fewer series")
	}
	return err
}

// use adds the turn that ends to the time for which the query has computed.
func (s *Session) use() { s.used = min(longTime, s.used+min(longTime, time.Since(s.turn))) }

// long reports whether the query has computed for longTime.
func (s *Session) long() bool { return s.used == longTime }

// Due reports whether the turn of the query is over and others wait. Any goroutine
// that works for the session may call it.
func (s *Session) Due() bool {
	e := s.engine
	wanted := e.queued.Load() > 0 || e.slots.all.due()
	if s.outside || !wanted && e.begun.Load() < 2 {
		return false
	}
	now := time.Now()
	if wanted && now.Sub(s.turn) >= turnTime {
		return true
	}
	s.breathe(now)
	return false
}

// breathe lets other goroutines run that are ready to, each sliceTime, while there are other
// queries. Go's scheduler does so after 10 ms only. Where queries have more goroutines than
// there are processors, a request would wait that long for each of them, and again at each
// of its steps.
func (s *Session) breathe(now time.Time) {
	last := s.slice.Load()
	if n := int64(now.Sub(s.begun)); n-last >= int64(sliceTime) && s.slice.CompareAndSwap(last, n) {
		runtime.Gosched()
		s.slice.Store(int64(time.Since(s.begun)))
	}
}

// Writer returns a writer for an answer that is encoded within the query's turn: while w waits
// for the client, another query may have the slot, as with Aside, and after each turnBytes
// others that wait have their turn. Without turns, only the number of connections would bound
// encoding, and the queries of one tenant could use all processors of the server.
func (s *Session) Writer(w io.Writer) io.Writer { return &turnWriter{session: s, w: w} }

// turnBytes is how much of an answer is encoded before others that wait have their turn. So a short
// answer is sent without waiting for another turn: it would wait in a buffer of the connection
// although it is complete.
const turnBytes = 16 << 10

type turnWriter struct {
	session *Session
	w       io.Writer
	bytes   int // since the last turn
}

func (t *turnWriter) Write(p []byte) (n int, err error) {
	err = t.session.Aside(func() (err error) {
		n, err = t.w.Write(p)
		t.session.trace.sent.Add(int64(n))
		return err
	})
	if t.bytes += n; err == nil && t.bytes >= turnBytes {
		t.bytes = 0
		err = t.session.Yield()
	}
	return n, err
}

// Settle marks the point at which a part of the answer has been sent. After it, no turn of
// the session is refused as overload, since the server could no longer send the client an
// error status.
func (s *Session) Settle() { s.settled = true }

// Aside runs f, which waits for the client and computes little. If f takes longer than clientTime,
// another query gets the slot meanwhile, and Aside waits for a new one.
func (s *Session) Aside(f func() error) error {
	s.Settle()
	if s.outside { // it has ended, and what is left of its answer is sent
		return f()
	}
	if err := s.aside(f); err != nil || !s.outside {
		return err
	}
	e := s.engine
	e.wait(+1)
	defer e.wait(-1)
	err := e.slots.line(s.ctx, s.sender(), s.nextLine(), 0, s.long())
	s.outside, s.turn = err != nil, time.Now()
	return err
}

func (s *Session) sender() netip.Prefix { return principal.NetworkOf(s.request.Client) }

// nextLine returns the id by which the query stands in line now that it has had a turn: 0, as
// a fresh one, after its first.
func (s *Session) nextLine() uint64 {
	if first := !s.again; first {
		s.again = true
		return 0
	}
	return s.id
}

func (s *Session) aside(f func() error) error {
	left := make(chan struct{})
	patience := time.AfterFunc(clientTime, func() {
		s.use()
		s.engine.slots.leave()
		close(left)
	})
	defer func() {
		if !patience.Stop() {
			<-left
			s.outside = true
		}
	}()
	return f()
}

// wait counts queries that wait for a slot.
func (e *Engine) wait(n int64) {
	e.queued.Add(n)
	e.metrics.queued.Add(float64(n))
}
