package cql

import "time"

// kind distinguishes reads and writes, which have separate limits.
type kind uint8

const (
	reads kind = iota
	writes
	kinds
)

var kindNames = [kinds]string{"read", "write"}

// pace finds how many concurrent statements of one kind a node can handle.
//
// With more statements than that, each only takes longer. Cassandra reports overload only after its
// own timeouts (2 s for a write, 5 s for a read), when the work has been wasted. So the limit is
// adjusted every second to the time that statements take:
//
//   - more than one in a hundred took longer than the goal (the 99th percentile is above it):
//     the limit becomes three quarters of what was in flight, but not less than an eighth of
//     max: other clients may cause the slowness, and a client that always reduces its load
//     would never be served;
//   - a timeout, or the node says that it is overloaded: half of it, at most once
//     a second;
//   - none of these, and the limit was reached: it grows by a tenth, at least by one.
//
// The limit stays between floor and max. A single slow statement in a second does not
// count.
type pace struct {
	goal time.Duration
	max  int

	limit float64
	cut   time.Time // when the limit was last lowered

	began   time.Time // beginning of this second
	answers int       // answers since began
	slow    int       // how many of these took longer than the goal
	most    int       // maximum in flight since began
}

const (
	paceWindow  = time.Second
	paceSlow    = 100 // one in this many may be slow
	paceFloor   = 4   // keeps some parallelism: with less, one slow statement would stop all
	paceEighth  = 8   // latency alone does not lower the limit below max/paceEighth
	cutSlow     = 0.75
	cutTimeout  = 0.5
	growth      = 0.1
	growthLeast = 1
)

func newPace(most int, goal time.Duration, now time.Time) pace {
	return pace{goal: goal, max: most, limit: float64(most), began: now}
}

// sent records how many statements are in flight after one was sent.
func (p *pace) sent(inFlight int) { p.most = max(p.most, inFlight) }

// full reports whether the node is at its limit.
func (p *pace) full(inFlight int) bool { return inFlight >= int(p.limit) }

// cause says why a limit was lowered.
type cause string

const (
	uncut      cause = ""
	forLatency cause = "latency"
	forTimeout cause = "timeout"
)

// answered records how long a statement took. It returns why the limit was lowered, if it was,
// and whether it changed at all.
func (p *pace) answered(now time.Time, took time.Duration, inFlight int) (why cause, changed bool) {
	p.answers++
	if took > p.goal {
		p.slow++
	}
	if now.Sub(p.began) < paceWindow {
		return uncut, false
	}
	before := p.limit
	switch {
	case p.slow > max(1, p.answers/paceSlow):
		p.lower(cutSlow, max(paceFloor, p.max/paceEighth))
		if p.limit < before {
			why = forLatency
		}
	case p.full(p.most) && now.Sub(p.cut) >= paceWindow:
		p.limit = min(float64(p.max), p.limit+max(growthLeast, growth*p.limit))
	}
	p.restart(now, inFlight)
	return why, p.limit != before
}

// timedOut records that a statement was not answered in time, or that the node reports
// overload.
func (p *pace) timedOut(now time.Time, inFlight int) (why cause, changed bool) {
	if now.Sub(p.cut) < paceWindow {
		return uncut, false
	}
	before := p.limit
	p.lower(cutTimeout, paceFloor)
	p.cut = now
	p.restart(now, inFlight)
	if p.limit == before {
		return uncut, false
	}
	return forTimeout, true
}

// lower sets the limit to a part of what was in flight, at least floor.
func (p *pace) lower(part float64, floor int) {
	least := min(p.limit, float64(min(floor, p.max)))
	p.limit = max(least, part*min(p.limit, float64(p.most)))
}

func (p *pace) restart(now time.Time, inFlight int) {
	p.began, p.answers, p.slow, p.most = now, 0, 0, inFlight
}
