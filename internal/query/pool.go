package query

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/store"
)

// A pool is the memory of all queries and unsent answers together. A query that
// finds the pool exhausted waits until others release memory. A pool is safe for
// concurrent use.
//
// Queries with little work do not wait behind those with much: an owner of more than smallGrant cannot
// have the reserve, one part in reserveShare, and a query that waits lends its slot to another (see
// budget.lend). Nor do senders with little memory wait behind those with much: one part in senderShare is
// for senders that have no more than that. While a query waits, the answers of clients that read slowly are ended, one in each
// stuckTime (see Unsent): they could hold memory for hours.
//
// Only a limited number of queries can lend their slots. If the queries that wait for memory keep
// all slots while others wait for a slot, one of them is refused after stuckTime: of the
// sender with the most queries in line, the one that began last.
//
// Queries with much work wait in the order in which they began, so that some end. If all of those
// that hold memory wait for more, the one that began last is refused after stuckTime, unless
// others, such as answers that are being sent, hold enough memory for the oldest to continue.
type pool struct {
	max     int64
	maxWait atomic.Int64 // a time.Duration
	metrics *metrics

	mu    sync.Mutex
	used  int64
	freed chan struct{}    // closed when one that waits may find memory, nil while nobody waits
	line  []waiting        // sessions that wait, oldest first
	held  map[uint64]int64 // what sessions hold until they end, with their answers

	senders map[netip.Prefix]int64 // what the queries and unsent answers of a sender hold

	outgoing map[*outgoing]struct{}
	looked   time.Time // for slow ones

	idle   func() bool // reports whether no query computes
	queued func() bool // reports whether a query waits for a slot
}

const (
	reserveShare = 16
	senderShare  = 8
	smallGrant   = 128 << 10 // the average of six hours of ten series takes 47 KB
	stuckTime    = 250 * time.Millisecond
)

// A want is memory that an owner asks for.
type want struct {
	bytes   int64
	held    int64        // what the owner would hold in total
	session uint64       // the session that waits; 0 for the text of a request, or for an answer whose query has ended
	sender  netip.Prefix // of the owner
	lent    *atomic.Bool // says whether the slot of the session is lent; nil if it has none
}

// waiting is a session that stands in line.
type waiting struct {
	session uint64
	bytes   int64 // that it waits for
	sender  netip.Prefix
	lent    *atomic.Bool
}

// keeps reports whether a session has a slot that nobody else uses.
func (w *waiting) keeps() bool { return w.lent != nil && !w.lent.Load() }

// place returns where a session stands in line, or would stand. p.mu is held.
func (p *pool) place(session uint64) (at int, there bool) {
	return slices.BinarySearchFunc(p.line, session, func(w waiting, session uint64) int { return cmp.Compare(w.session, session) })
}

// reserve is the memory that is for small owners only. A pool whose reserve
// would be smaller than smallGrant has none.
func (p *pool) reserve() int64 {
	if r := p.max / reserveShare; r >= smallGrant {
		return r
	}
	return 0
}

// modest is the most that a sender may hold, in total, to be granted memory that other senders are
// refused. A pool in which this would be less than 4*grantBytes has no such memory.
func (p *pool) modest() int64 {
	if r := p.max / senderShare; r >= 4*grantBytes {
		return r
	}
	return 0
}

// most is what large owners may have together, apart from those of modest senders.
func (p *pool) most() int64 { return p.max - p.reserve() - p.modest() }

// possible returns an error if an owner could not have the memory even if it were alone. Such an
// owner would wait in vain, ahead of younger ones.
func (p *pool) possible(w want) error {
	if w.held <= p.most() {
		return nil
	}
	return &store.LimitError{
		Limit: "query.total_memory", Max: p.most(), Need: w.held, What: "memory for one answer or text; ask for less at once",
	}
}

// acquire takes memory, or fails with a Busy limit after maxWait, so that
// queries do not wait for each other forever.
func (p *pool) acquire(ctx context.Context, w want) error {
	if err := p.possible(w); err != nil {
		return err
	}
	defer p.leave(w.session)
	freed, ok := p.try(w)
	if ok {
		return nil
	}
	p.metrics.memoryWaits.Inc()
	defer p.metrics.memoryWaits.Dec()
	maxWait := time.Duration(p.maxWait.Load())
	timer, ticker := time.NewTimer(maxWait), time.NewTicker(stuckTime)
	defer timer.Stop()
	defer ticker.Stop()
	for !ok {
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			p.endSlow()
			if n := p.stuck(w.session, freed); n > 0 {
				return p.busy(w, fmt.Sprintf("%d queries hold all of it and wait for more, and this one began last", n))
			}
			if p.blocks(w) {
				return p.busy(w, "the queries that wait for it keep all slots, and other queries wait for a slot")
			}
		case <-timer.C:
			return p.busy(w, "none became free within query.max_wait of "+maxWait.String())
		}
		freed, ok = p.try(w)
	}
	return nil
}

func (p *pool) busy(w want, why string) error {
	p.metrics.memoryRefused.Inc()
	return &store.LimitError{
		Limit: "query.total_memory", Busy: true, Max: p.max, Need: p.inUse() + w.bytes,
		What: "memory of all queries and unsent answers together; " + why,
	}
}

// try takes memory, or returns a channel that is closed when there may be some.
func (p *pool) try(w want) (freed chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has(w) {
		p.change(w.sender, w.bytes)
		if w.session != 0 {
			p.held[w.session] += w.bytes
		}
		return nil, true
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	if at, there := p.place(w.session); there {
		p.line[at].bytes, p.line[at].lent = w.bytes, w.lent
	} else if w.session != 0 {
		p.line = slices.Insert(p.line, at, waiting{w.session, w.bytes, w.sender, w.lent})
	}
	return p.freed, false
}

// has reports whether there is memory for an owner. p.mu is held.
func (p *pool) has(w want) bool {
	if w.held <= smallGrant {
		return p.used+w.bytes <= p.max
	}
	if !p.isModest(w.sender, w.bytes) {
		older := len(p.line) > 0 && p.line[0].session < w.session
		return !older && p.used+w.bytes <= p.most()
	}
	for _, o := range p.line {
		if o.session < w.session && p.isModest(o.sender, o.bytes) {
			return false
		}
	}
	return p.used+w.bytes <= p.max-p.reserve()
}

// isModest reports whether a sender has little memory, with n bytes more. p.mu is held.
func (p *pool) isModest(sender netip.Prefix, n int64) bool { return p.senders[sender]+n <= p.modest() }

// change counts n bytes more for a sender. p.mu is held.
func (p *pool) change(sender netip.Prefix, n int64) {
	p.used += n
	p.metrics.memory.Set(float64(p.used))
	if p.senders[sender] += n; p.senders[sender] == 0 {
		delete(p.senders, sender)
	}
}

// stuck returns how many sessions hold memory, if all of them wait for more and this one began
// last. It returns 0 otherwise, also if memory may have become free, or if others hold enough for
// the oldest. freed is the channel that the session waits for.
func (p *pool) stuck(session uint64, freed chan struct{}) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freed != freed {
		return 0
	}
	n, last, all := 0, uint64(0), int64(0)
	for _, w := range p.line {
		held := p.held[w.session]
		all += held
		if held > smallGrant {
			n, last = n+1, w.session
		}
	}
	large := 0 // sessions that could release much
	for _, held := range p.held {
		if held > smallGrant {
			large++
		}
	}
	if n < large || n == 0 || last != session || all+p.line[0].bytes <= p.most() {
		return 0
	}
	return n
}

// blocks reports whether the session of w is to be refused because it keeps its slot. That is so if
// no query computes, others wait for a slot, and, of the sessions that wait for memory and keep
// their slots, it is the last of the sender with the most in line. Without blocks they could wait
// for hours: answers whose clients read slowly may hold the memory.
func (p *pool) blocks(w want) bool {
	if w.lent == nil || !p.queued() || !p.idle() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	inLine := map[netip.Prefix]int{}
	for _, o := range p.line {
		inLine[o.sender]++
	}
	last := waiting{}
	for _, o := range p.line { // oldest first
		if o.keeps() && (last.session == 0 || inLine[o.sender] >= inLine[last.sender]) {
			last = o
		}
	}
	return last.session == w.session
}

// waited reports whether a session waits for memory.
func (p *pool) waited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.line) > 0
}

// leave removes a session that waits no longer from the line.
func (p *pool) leave(session uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, there := p.place(session)
	if !there {
		return
	}
	p.line = slices.Delete(p.line, at, at+1)
	p.wake()
}

// wake lets those that wait try again. p.mu is held.
func (p *pool) wake() {
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// shrink releases a part of what a session has.
func (p *pool) shrink(session uint64, sender netip.Prefix, n int64) {
	p.release(sender, n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[session] -= n
}

// end releases what a session has, except for its answer.
func (p *pool) end(session uint64, sender netip.Prefix, n int64) {
	p.release(sender, n)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, session)
}

func (p *pool) release(sender netip.Prefix, n int64) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(sender, -n)
	p.wake()
}

func (p *pool) inUse() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// mostLent is how many queries may lend their slots: the queries that can begin meanwhile take at
// most half of the reserve before they wait, too.
func (e *Engine) mostLent() int64 {
	return min(int64(e.config.Load().MaxQueued), e.pool.reserve()/smallGrant/2)
}

// lend waits for memory. Meanwhile another query uses the slot.
func (b *budget) lend(ctx context.Context, w want) error {
	e := b.engine
	w.lent = &b.lent
	defer b.lendSlot()()
	e.paused.Add(1)
	defer e.paused.Add(-1)
	return e.slots.all.without(func() error { return e.pool.acquire(ctx, w) })
}

// lendSlot lets another query use the slot of a query that waits for something, until back is
// called. After back, the query continues without waiting for a slot: for a moment more queries
// than slots compute, until some have had their turn. If several goroutines of a query wait, the
// query lends its one slot once. The query keeps its slot if enough others have lent theirs.
func (b *budget) lendSlot() (back func()) {
	e := b.engine
	switch {
	case !b.lent.CompareAndSwap(false, true):
		return func() {}
	case e.lent.Add(1) > e.mostLent():
		e.lent.Add(-1)
		b.lent.Store(false)
		return func() {}
	}
	e.slots.grow(1)
	return func() {
		e.lent.Add(-1)
		e.slots.grow(-1)
		b.lent.Store(false)
	}
}

// storeTime is how long a query keeps its slot while it waits for a store on other machines.
const storeTime = 20 * time.Millisecond

// A storeWait lends the slot of a query while a call of the store takes longer than storeTime
// because it waits for other machines. While much of the memory is used, it lends nothing: queries
// that wait hold memory, and new queries would need more. A nil *storeWait does nothing. It is used
// by one goroutine.
type storeWait struct {
	budget *budget
	timer  *time.Timer

	mu      sync.Mutex
	waiting bool
	back    func() // not nil while the slot is lent
}

// storeWait returns nil if the store has no other machines to wait for, or the query has no slot.
func (s *Session) storeWait() *storeWait {
	if !s.remote || s.outside {
		return nil
	}
	return &storeWait{budget: &s.budget}
}

// lookupWait is storeWait for the goroutine of the session, whose lookups call Tick.
func (s *Session) lookupWait() *storeWait {
	if s.lookup == nil || s.outside {
		s.lookup = s.storeWait()
	}
	return s.lookup
}

// begin is called before each call of the store.
func (w *storeWait) begin() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.waiting = true
	w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(storeTime, w.lend)
	} else {
		w.timer.Reset(storeTime)
	}
}

func (w *storeWait) lend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.budget.engine.pool
	if w.waiting && w.back == nil && !p.waited() && p.inUse() <= p.max/2 {
		w.back = w.budget.lendSlot()
	}
}

// end is called after each call of the store, and reports whether a call was in
// progress. Calling it twice is allowed.
func (w *storeWait) end() (waited bool) {
	if w == nil || w.timer == nil {
		return false
	}
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	waited, w.waiting = w.waiting, false
	if w.back != nil {
		w.back()
		w.back = nil
	}
	return waited
}
