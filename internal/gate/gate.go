// Package gate limits how much of something is in use at a time: memory, samples, decoders. Callers
// that do not fit wait. Senders take turns, so that a sender with a thousand connections delays
// others no more than a sender with a single connection.
package gate

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
)

// A Gate limits an amount. Its methods may be called by many goroutines at once.
//
// A waiting caller is not overtaken by later callers of its own sender. Between two turns of its
// sender, at most one caller of each other sender is admitted. If the caller whose turn it is does
// not fit, all others wait with it, so that a large caller is not overtaken for ever.
//
// A gate may have a reserve, a part of its amount that is only for senders that hold no more than the
// reserve. They may take from the reserve without waiting behind others, but from the rest only in turn.
// So a sender that holds its part for long, however many callers it has, leaves room for others, and
// these cannot keep a large caller waiting for ever.
type Gate struct {
	most, reserve int64

	mu struct {
		sync.Mutex
		used  holding
		held  map[netip.Prefix]holding       // by sender; nil without a reserve
		turns *list.List                     // of *line: the senders that have callers waiting, the next one first
		lines map[netip.Prefix]*list.Element // of turns
	}
}

// A holding is the amount that a sender holds, and the part of it that is from
// the reserve.
type holding struct{ all, reserved int64 }

// A line holds the callers of one sender that wait.
type line struct {
	sender  netip.Prefix
	callers *list.List // of *caller, the longest waiting first
}

// A caller is a waiting call of Enter.
type caller struct {
	n        int64
	admitted chan struct{} // closed once n is taken for it
}

// New returns a gate of this amount, without a reserve.
func New(most int64) *Gate { return NewReserving(most, 0) }

// NewReserving returns a gate of this amount with a reserve.
func NewReserving(most, reserve int64) *Gate {
	g := &Gate{most: most, reserve: reserve}
	g.mu.held = map[netip.Prefix]holding{}
	g.mu.turns = list.New()
	g.mu.lines = map[netip.Prefix]*list.Element{}
	return g
}

// Enter takes n for a sender, clamped to what a sender may hold, and returns what Leave must give
// back. It waits until ctx ends. The zero Prefix is a sender, too.
func (g *Gate) Enter(ctx context.Context, sender netip.Prefix, n int64) (taken int64, waited bool, err error) {
	n = min(n, max(g.most-g.reserve, g.reserve))
	g.mu.Lock()
	if g.enterLocked(sender, n) {
		g.mu.Unlock()
		return n, false, nil
	}
	c := &caller{n: n, admitted: make(chan struct{})}
	inTurns, inLine := g.queueLocked(sender, c)
	g.mu.Unlock()
	select {
	case <-c.admitted:
		return n, true, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-c.admitted:
		return n, true, nil // it was admitted just before ctx ended
	default:
		g.withdrawLocked(inTurns, inLine)
		g.admitLocked() // a smaller caller may have been waiting behind it
		return 0, true, ctx.Err()
	}
}

// TryEnter takes n for a sender if it need not wait.
func (g *Gate) TryEnter(sender netip.Prefix, n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.enterLocked(sender, n)
}

// Leave gives back n, which a sender has taken.
func (g *Gate) Leave(sender netip.Prefix, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.giveLocked(sender, n)
	g.admitLocked()
}

// Helps reports whether n would fit for sender if leaving gave back n, and it were sender's turn. It would not
// fit if leaving's part is from the reserve, and sender holds too much to use the reserve.
func (g *Gate) Helps(leaving, sender netip.Prefix, n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	used, one, other := g.mu.used, g.mu.held[leaving], g.mu.held[sender]
	g.giveLocked(leaving, n)
	fits := g.takeLocked(sender, n, true)
	g.mu.used = used
	g.keepLocked(sender, other)
	g.keepLocked(leaving, one)
	return fits
}

// Most returns the amount of the gate.
func (g *Gate) Most() int64 { return g.most }

// InUse returns how much is taken.
func (g *Gate) InUse() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.used.all
}

// Waiting returns how many callers wait.
func (g *Gate) Waiting() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for turn := g.mu.turns.Front(); turn != nil; turn = turn.Next() {
		n += turn.Value.(*line).callers.Len()
	}
	return n
}

// enterLocked takes n if it fits and need not wait behind others. g.mu must be held.
func (g *Gate) enterLocked(sender netip.Prefix, n int64) bool {
	return g.takeLocked(sender, n, g.mu.turns.Len() == 0)
}

// takeLocked takes n for a sender if it fits: from the unreserved part if it is the sender's turn, or else
// from the reserve. g.mu must be held.
func (g *Gate) takeLocked(sender netip.Prefix, n int64, turn bool) bool {
	used, held := &g.mu.used, g.mu.held[sender]
	switch {
	case turn && used.all-used.reserved+n <= g.most-g.reserve:
	case g.reserve > 0 && held.all+n <= g.reserve && used.reserved+n <= g.reserve:
		used.reserved += n
		held.reserved += n
	default:
		return false
	}
	used.all += n
	held.all += n
	g.keepLocked(sender, held)
	return true
}

// giveLocked gives back n of a sender. It frees the sender's part of the reserve last: otherwise a
// sender that repeatedly takes from the reserve would keep its unreserved part. g.mu must be held.
func (g *Gate) giveLocked(sender netip.Prefix, n int64) {
	used, held := &g.mu.used, g.mu.held[sender]
	used.all -= n
	held.all -= n
	if of := held.reserved - held.all; of > 0 && g.reserve > 0 {
		used.reserved -= of
		held.reserved -= of
	}
	g.keepLocked(sender, held)
}

// keepLocked records what a sender holds. g.mu must be held.
func (g *Gate) keepLocked(sender netip.Prefix, held holding) {
	switch {
	case g.reserve == 0:
	case held.all == 0:
		delete(g.mu.held, sender)
	default:
		g.mu.held[sender] = held
	}
}

// queueLocked makes a caller of a sender wait, and returns its places. g.mu must be held.
func (g *Gate) queueLocked(sender netip.Prefix, c *caller) (inTurns, inLine *list.Element) {
	inTurns = g.mu.lines[sender]
	if inTurns == nil {
		inTurns = g.mu.turns.PushBack(&line{sender, list.New()})
		g.mu.lines[sender] = inTurns
	}
	return inTurns, inTurns.Value.(*line).callers.PushBack(c)
}

// withdrawLocked removes a caller from its places. g.mu must be held.
func (g *Gate) withdrawLocked(inTurns, inLine *list.Element) {
	l := inTurns.Value.(*line)
	l.callers.Remove(inLine)
	if l.callers.Len() == 0 {
		g.mu.turns.Remove(inTurns)
		delete(g.mu.lines, l.sender)
	}
}

// admitLocked admits the callers that fit, in turn. Once a caller does not fit, later callers are
// admitted only into the reserve. g.mu must be held.
func (g *Gate) admitLocked() {
	blocked := false
	for turn := g.mu.turns.Front(); turn != nil; {
		l := turn.Value.(*line)
		first := l.callers.Front()
		c := first.Value.(*caller)
		next := turn.Next()
		if !g.takeLocked(l.sender, c.n, !blocked) {
			if g.reserve == 0 {
				return
			}
			blocked, turn = true, next
			continue
		}
		close(c.admitted)
		g.mu.turns.MoveToBack(turn)
		g.withdrawLocked(turn, first)
		if next == nil && l.callers.Len() > 0 {
			next = turn // its sender keeps the next turn
		}
		turn = next
	}
}
