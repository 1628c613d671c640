// Package gate limits how much of something is in use at a time: memory, samples, decoders. Callers
// that do not fit wait. Their senders take turns, so that one with a thousand connections delays
// others no more than one with a single connection does.
package gate

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
)

// A Gate limits an amount. Its methods may be called by many goroutines at once.
//
// A caller that waits is not overtaken by later callers of its own sender, and by at most one of each
// other sender for each turn of its own. If the caller whose turn it is does not fit, all others wait
// with it, so that a large one is not overtaken for ever.
type Gate struct {
	most int64

	mu struct {
		sync.Mutex
		used  int64
		turns *list.List                     // of *line: the senders that have callers waiting, the next one first
		lines map[netip.Prefix]*list.Element // of turns
	}
}

// A line holds the callers of one sender that wait.
type line struct {
	sender  netip.Prefix
	callers *list.List // of *caller, the longest waiting first
}

// A caller waits.
type caller struct {
	n        int64
	admitted chan struct{} // closed once n is taken for it
}

// New returns a gate of this amount.
func New(most int64) *Gate {
	g := &Gate{most: most}
	g.mu.turns = list.New()
	g.mu.lines = map[netip.Prefix]*list.Element{}
	return g
}

// Enter takes n for a sender, clamped to the amount of the gate, and returns what Leave must give
// back. It waits until ctx ends. The zero Prefix is a sender, too.
func (g *Gate) Enter(ctx context.Context, sender netip.Prefix, n int64) (taken int64, waited bool, err error) {
	n = min(n, g.most)
	g.mu.Lock()
	if g.takeLocked(n) {
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
		return n, true, nil // just before ctx ended
	default:
		g.withdrawLocked(inTurns, inLine)
		g.admitLocked() // it may have been in the way of a smaller one
		return 0, true, ctx.Err()
	}
}

// TryEnter takes n if that needs no waiting.
func (g *Gate) TryEnter(n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takeLocked(n)
}

// Leave gives n back.
func (g *Gate) Leave(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.used -= n
	g.admitLocked()
}

// Most returns the amount of the gate.
func (g *Gate) Most() int64 { return g.most }

// InUse returns how much is taken.
func (g *Gate) InUse() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.used
}

// takeLocked takes n if it fits and nobody waits. g.mu must be held.
func (g *Gate) takeLocked(n int64) bool {
	if g.mu.turns.Len() > 0 || g.mu.used+n > g.most {
		return false
	}
	g.mu.used += n
	return true
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

// admitLocked admits the callers that fit, in turn. g.mu must be held.
func (g *Gate) admitLocked() {
	for turn := g.mu.turns.Front(); turn != nil; turn = g.mu.turns.Front() {
		first := turn.Value.(*line).callers.Front()
		c := first.Value.(*caller)
		if g.mu.used+c.n > g.most {
			return
		}
		g.mu.used += c.n
		close(c.admitted)
		g.mu.turns.MoveToBack(turn)
		g.withdrawLocked(turn, first)
	}
}
