package agg

import "time"

// Bucketing returns how a range aggregator cuts time. All range aggregators have it by
// embedding Range. A caller that runs a query repeatedly, as roll-ups do, changes it so
// that each run has the same buckets.
func (r *Range) Bucketing() *Range { return r }

// OneResult reports whether a range aggregator gives each bucket one result.
func OneResult(s Step) bool {
	switch s := s.(type) {
	case *foldStep:
		return true
	case *collectStep:
		return !s.several
	}
	return false
}

// A Grid cuts all time into buckets that depend on nothing but sampling and
// zone, where a query's buckets depend on where it starts:
//
//   - Days, weeks, months and years count from 1970-01-01 (weeks from Monday
//     1969-12-29) in the zone.
//   - Hours and shorter count from midnight in the zone if they divide a day of
//     24 hours, so that a bucket never reaches into the next day: on a day with
//     a change of the clock the last one may be cut short. Otherwise they count
//     from 1970-01-01 in the zone.
//
// The sampling must be of at least one unit.
type Grid struct {
	buckets buckets
	daily   bool
}

// NewGrid returns the grid of a sampling; a nil zone is UTC.
func NewGrid(s Sampling, zone *time.Location) *Grid {
	if zone == nil {
		zone = time.UTC
	}
	g := &Grid{buckets: buckets{cal: calendar{zone}, sampling: s}}
	if f := s.Unit.fixedMS(); f > 0 {
		g.daily = s.Value <= dayMS/f && dayMS%(s.Value*f) == 0
	}
	origin := max(s.Unit, Days)
	_, offset := time.UnixMilli(0).In(zone).Zone()
	g.buckets.originMS = g.buckets.cal.alignDown(-int64(offset)*secondMS, origin)
	return g
}

// Start is the first instant of the bucket that contains ms.
func (g *Grid) Start(ms int64) int64 {
	ms = clampMS(ms)
	if g.daily {
		return g.ofDay(ms).find(ms).startMS
	}
	if ms >= g.buckets.originMS {
		return g.buckets.find(ms).startMS
	}
	// Before the origin a query truncates quotients towards zero; a grid rounds them
	// down.
	n := -1 - g.buckets.cal.between(ms, g.buckets.originMS, g.buckets.sampling.Unit)/g.buckets.sampling.Value
	for g.buckets.start(n+1) <= ms {
		n++
	}
	return g.buckets.start(n)
}

// Next is the first instant after the bucket that contains ms.
func (g *Grid) Next(ms int64) int64 {
	ms = clampMS(ms)
	if g.daily {
		return min(g.ofDay(ms).find(ms).endMS(), g.buckets.cal.nextDay(ms))
	}
	if ms >= g.buckets.originMS {
		return g.buckets.find(ms).endMS()
	}
	start := g.Start(ms)
	n := -(g.buckets.cal.between(start, g.buckets.originMS, g.buckets.sampling.Unit) / g.buckets.sampling.Value)
	for g.buckets.start(n) <= ms {
		n++
	}
	return g.buckets.start(n)
}

// Run is the end of a run of buckets from start, the beginning of a bucket, that a
// query with its origin at start cuts as the grid does: the day; a single bucket if it
// begins where the clock skipped midnight; or unbounded.
func (g *Grid) Run(start int64) (endMS int64, bounded bool) {
	cal := g.buckets.cal
	switch {
	case g.daily:
		return cal.nextDay(clampMS(start)), true
	case g.buckets.sampling.Unit.fixedMS() == 0 && cal.local(clampMS(start))%dayMS != 0:
		return g.Next(start), true
	}
	return 0, false
}

// ofDay are the buckets that begin at midnight of the day of ms.
func (g *Grid) ofDay(ms int64) *buckets {
	b := g.buckets
	b.originMS = b.cal.alignDown(ms, Days)
	return &b
}

// nextDay is when the day after that of ms begins.
func (c calendar) nextDay(ms int64) int64 {
	next := c.alignDown(c.add(c.alignDown(ms, Days), 1, Days), Days)
	if next <= ms { // a zone that skipped a day
		next = c.alignDown(c.add(ms, 2, Days), Days)
	}
	return max(next, ms+1)
}

// Later returns the instant n units after ms by the calendar of a zone.
func Later(ms, n int64, u Unit, zone *time.Location) int64 {
	return calendar{zone}.add(ms, n, u)
}
