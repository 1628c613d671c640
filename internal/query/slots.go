package query

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/congestion"
	"varve/internal/store"
)

// slots limits the queries that compute at once. Waiting queries stand in two lines. In the line of
// fresh queries, which wait for their first or second turn, senders take turns. In the line of
// begun queries, which have used two turns, the oldest comes first, so that some queries end before
// all are half done. But every other slot of this line goes to a query that has not computed for
// long, and a query that has computed for long gives up its slot to such a query: a query that
// needs three turns must not wait for the end of one that needs a thousand. On a busy machine one
// turn is too little even for a short query, which may spend most of it waiting for a processor.
// Free slots go to the two lines alternately. slots is safe for many goroutines.
//
// When one of the lines is congested, queries in it that wait for their first or third turn are
// refused early; see shed. Later turns are not refused: by then much of the work is done.
type slots struct {
	mu    sync.Mutex
	free  int // below 0 while more are taken than there should be
	taken int
	spare int    // goroutines that help queries; see help
	all   *Turns // counts the taken and the spare ones of all tenants; may be nil
	fresh line
	begun line // by id
	last  bool // the last slot went to the line of begun queries
	quick bool // the last slot of that line went to a query that has not computed for long
}

// A line is queries that wait for a slot.
type line struct {
	waiters []*waiter
	round   uint64 // of the waiter that was called last
	congestion.Line
	refused prometheus.Counter // nil counts nothing
}

// A waiter stands in a line until it is called.
type waiter struct {
	id       uint64 // of a query in the line begun, else 0
	sender   netip.Prefix
	round    uint64 // in the line of fresh ones, in which each sender has one waiter a round
	since    time.Time
	patience congestion.Patience // 0: it is not refused early
	long     bool                // the query has computed for longTime
	called   chan struct{}       // closed when it has a slot, or is refused
	refused  error
}

// Errors of waiters that are refused.
var (
	errCongested = errors.New("the line is congested")
	errDisplaced = errors.New("the line is full, and its sender has the most waiters")
)

// call gives the waiter in front a slot.
func (l *line) call(now time.Time) { l.callAt(0, now) }

// callAt gives a waiter a slot.
func (l *line) callAt(i int, now time.Time) {
	w := l.waiters[i]
	l.waiters = slices.Delete(l.waiters, i, i+1)
	l.round = max(l.round, w.round)
	if w.patience > 0 {
		l.Served(now, now.Sub(w.since), w.patience)
	}
	close(w.called)
}

// shed refuses the waiters that have stood for long enough, if the line is congested.
func (l *line) shed(now time.Time) {
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool {
		if w.patience == 0 || !l.Congested(now, w.patience) || now.Sub(w.since) <= w.patience.Enough() {
			return false
		}
		w.refused = errCongested
		if l.refused != nil {
			l.refused.Inc()
		}
		close(w.called)
		return true
	})
}

// canRefuse reports whether a waiter of the line may be refused early.
func (l *line) canRefuse() bool {
	return slices.ContainsFunc(l.waiters, func(w *waiter) bool { return w.patience > 0 })
}

// try takes a slot if there is one that nobody waits for.
func (s *slots) try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free <= 0 {
		return false
	}
	s.free--
	s.take(1)
	return true
}

// help takes up to n goroutines beside those of the queries that have slots, of most in
// all, and returns how many. It does not wait. They are given back with helped.
func (s *slots) help(n, most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = max(0, min(n, most-s.taken-s.spare, s.all.left()))
	s.spare += n
	s.all.add(n)
	return n
}

func (s *slots) helped(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare -= n
	s.all.add(-n)
}

// A queue says how many callers may wait for a slot, and which errors callers
// get that are refused.
type queue struct {
	config  *Config
	most    int64 // callers that may wait
	sender  netip.Prefix
	waiting *atomic.Int64
	gauge   prometheus.Gauge

	full         store.LimitError // of a caller that is one too many
	late         store.LimitError // of one that has waited for max_wait
	what, wayOut string           // of one that is refused earlier, see Config.congested
}

// queue waits for a slot in q.
func (s *slots) queue(ctx context.Context, q queue) error {
	n := q.waiting.Add(1)
	defer q.waiting.Add(-1)
	s.mu.Lock()
	if n > q.most && !s.makeRoom(q.sender, int(q.most/8)) {
		s.mu.Unlock()
		return q.isFull(n)
	}
	w := s.takeOrStand(q.sender, 0, q.config.MaxWait, false)
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	q.gauge.Inc()
	defer q.gauge.Dec()
	q.late.Busy = true
	ctx, cancel := context.WithTimeoutCause(ctx, q.config.MaxWait, &q.late)
	defer cancel()
	switch err := s.wait(ctx, w); err {
	case errCongested:
		return q.config.congested(q.what, q.wayOut)
	case errDisplaced:
		return q.isFull(n)
	default:
		return err
	}
}

// isFull is the error of a caller that would be the nth to wait.
func (q *queue) isFull(n int64) error {
	q.full.Busy, q.full.Max, q.full.Need = true, q.most, max(n, q.most+1)
	return &q.full
}

// makeRoom reports whether a query of a sender may wait although the lines are full: in the place
// of another query, or in the reserve of n places. s.mu is held.
func (s *slots) makeRoom(sender netip.Prefix, n int) bool {
	waiting := s.senders()
	return s.displace(sender, waiting) || s.reserve(waiting[sender], n)
}

// displace makes room for a query of a sender in the line of fresh queries. It refuses the last
// query of the sender that has the most, if that sender has more than this one would have. s.mu is
// held.
func (s *slots) displace(sender netip.Prefix, waiting map[netip.Prefix]int) bool {
	last := -1
	for i, w := range s.fresh.waiters { // those for their second turn are not refused
		if w.patience > 0 && waiting[w.sender] > waiting[sender]+1 && (last < 0 || waiting[w.sender] >= waiting[s.fresh.waiters[last].sender]) {
			last = i
		}
	}
	if last < 0 {
		return false
	}
	w := s.fresh.waiters[last]
	s.fresh.waiters = slices.Delete(s.fresh.waiters, last, last+1)
	w.refused = errDisplaced
	close(w.called)
	return true
}

// reserve reports whether a query may wait although the lines are full. waiting is the number of
// queries of its sender that wait. If all waiting queries have begun, none can be displaced, and
// one sender could keep out all others. So up to n queries may wait to begin, however many others
// wait, but none of a sender that has n waiting. s.mu is held.
func (s *slots) reserve(waiting, n int) bool {
	fresh := 0
	for _, w := range s.fresh.waiters {
		if w.patience > 0 {
			fresh++
		}
	}
	return fresh < n && waiting < n
}

// senders counts the waiters of each sender. s.mu is held.
func (s *slots) senders() map[netip.Prefix]int {
	n := map[netip.Prefix]int{}
	for _, l := range []*line{&s.fresh, &s.begun} {
		for _, w := range l.waiters {
			n[w.sender]++
		}
	}
	return n
}

// line waits for a slot. id is 0 for a fresh query. A patience of 0 keeps it from being
// refused early. long says that the query has computed for longTime.
func (s *slots) line(ctx context.Context, sender netip.Prefix, id uint64, patience time.Duration, long bool) error {
	s.mu.Lock()
	w := s.takeOrStand(sender, id, patience, long)
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return s.wait(ctx, w)
}

// takeOrStand takes a slot that is free and returns nil, or puts a waiter into its line. s.mu is held.
func (s *slots) takeOrStand(sender netip.Prefix, id uint64, patience time.Duration, long bool) *waiter {
	if s.free > 0 {
		s.free--
		s.take(1)
		return nil
	}
	return s.stand(sender, id, patience, long)
}

// stand puts a waiter into its line. s.mu is held.
func (s *slots) stand(sender netip.Prefix, id uint64, patience time.Duration, long bool) *waiter {
	w := &waiter{id: id, sender: sender, since: time.Now(), patience: congestion.Patience(patience), long: long, called: make(chan struct{})}
	l := &s.fresh
	if id != 0 {
		l = &s.begun
	}
	if patience > 0 {
		l.shed(w.since)
		if !l.canRefuse() {
			l.Short(w.since)
		}
	}
	at := 0
	if id == 0 {
		at = l.join(w)
	} else {
		at, _ = slices.BinarySearchFunc(l.waiters, id, func(w *waiter, id uint64) int { return cmp.Compare(w.id, id) })
	}
	l.waiters = slices.Insert(l.waiters, at, w)
	return w
}

// join gives a fresh waiter the round after that of the last one of its sender, and returns its place.
func (l *line) join(w *waiter) int {
	w.round = l.round
	for _, o := range l.waiters {
		if o.sender == w.sender {
			w.round = max(w.round, o.round+1)
		}
	}
	at, _ := slices.BinarySearchFunc(l.waiters, w.round, func(o *waiter, round uint64) int {
		if o.round <= round { // those of the same round came before
			return -1
		}
		return 1
	})
	return at
}

// wait waits until w is called. If ctx ends first, w leaves its line.
func (s *slots) wait(ctx context.Context, w *waiter) error {
	select {
	case <-w.called:
		return w.refused
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.called: // at the same moment
		if w.refused == nil {
			s.pass() // the slot goes to the next waiter
		}
	default:
		isW := func(x *waiter) bool { return x == w }
		s.fresh.waiters, s.begun.waiters = slices.DeleteFunc(s.fresh.waiters, isW), slices.DeleteFunc(s.begun.waiters, isW)
	}
	return context.Cause(ctx)
}

// leave gives a slot back.
func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass()
}

// pass gives a taken slot to the next waiter, or frees it. s.mu is held.
func (s *slots) pass() {
	if s.free < 0 { // there are fewer slots than there were
		s.free++
		s.take(-1)
		return
	}
	switch l, now := s.next(); l {
	case nil:
	case &s.begun:
		s.callBegun(now)
		return
	default:
		l.call(now)
		return
	}
	s.free++
	s.take(-1)
}

// callBegun gives a slot to a query of the begun line. s.mu is held.
func (s *slots) callBegun(now time.Time) {
	i := s.firstQuick()
	s.quick = !s.quick && i >= 0
	if !s.quick {
		i = 0
	}
	s.begun.callAt(i, now)
}

// firstQuick returns the first query in the begun line that has not computed for long, -1 if there
// is none. s.mu is held.
func (s *slots) firstQuick() int {
	return slices.IndexFunc(s.begun.waiters, func(w *waiter) bool { return !w.long })
}

// take counts taken slots. s.mu is held.
func (s *slots) take(n int) {
	s.taken += n
	s.all.add(n)
}

// next returns the line whose turn it is, nil if nobody waits. s.mu is held.
func (s *slots) next() (l *line, now time.Time) {
	if len(s.fresh.waiters)+len(s.begun.waiters) > 0 { // otherwise the time does not matter
		now = time.Now()
		s.fresh.shed(now)
		s.begun.shed(now)
	}
	fresh, begun := len(s.fresh.waiters) > 0, len(s.begun.waiters) > 0
	s.last = begun && !(fresh && s.last)
	switch {
	case s.last:
		return &s.begun, now
	case fresh:
		return &s.fresh, now
	}
	return nil, now
}

// grow adds n slots, or removes slots if n is negative. A slot in use is removed
// once it is given back.
func (s *slots) grow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += min(n, 0)
	for ; n > 0; n-- {
		s.take(1)
		s.pass()
	}
}

// yield gives the slot of a query to another one, and waits for another slot: to a fresh query,
// unless the waiting queries that have had a turn have reached the number most. A query that has
// computed for long also gives its slot to a begun query that has not. Where begun queries may be
// refused, a query with patience also gives its slot to one of them. yield reports whether the
// query stood in line. After an error the query has no slot. patience and long are those of line.
func (s *slots) yield(ctx context.Context, sender netip.Prefix, id uint64, most int, patience time.Duration, long bool) (stood bool, err error) {
	s.mu.Lock()
	if !s.giveUp(most, patience, long) {
		s.mu.Unlock()
		return false, nil
	}
	w := s.stand(sender, id, patience, long)
	s.mu.Unlock()
	return true, s.wait(ctx, w)
}

// giveUp gives the slot of the caller of yield to another query. It returns false if the caller
// keeps it. s.mu is held.
func (s *slots) giveUp(most int, patience time.Duration, long bool) bool {
	now := time.Now()
	s.fresh.shed(now)
	s.begun.shed(now)
	fresh := len(s.fresh.waiters) > 0 && s.halfDone() < most
	if long && !(fresh && s.last) {
		if i := s.firstQuick(); i >= 0 { // this changes nothing about how many are half done
			s.begun.callAt(i, now)
			s.last = true
			return true
		}
	}
	switch {
	case fresh:
		s.fresh.call(now)
		s.last = false
		return true
	case len(s.fresh.waiters) == 0 && patience > 0 && s.begun.canRefuse() && s.begun.Congested(now, congestion.Patience(patience)) && s.halfDone() < most:
		s.begun.call(now) // a query that may be refused gets one turn, and no more
		return true
	}
	return false
}

// halfDone returns the number of waiting queries that have had a turn. s.mu is
// held.
func (s *slots) halfDone() int {
	n := len(s.begun.waiters)
	for _, w := range s.fresh.waiters {
		if w.patience == 0 { // for its second turn
			n++
		}
	}
	return n
}
