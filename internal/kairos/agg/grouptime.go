package agg

import (
	"time"

	"varve/internal/store"
)

// timeSpec groups points by their time since the start of the query.
func timeSpec() GroupBySpec {
	return GroupBySpec{
		Name: "time", Doc: "Points in the same range of a repeating cycle of time ranges.",
		Properties: []Property{
			{Name: "range_size", Kind: SamplingProperty, Doc: "length of a range"},
			{Name: "group_count", Kind: IntProperty, Doc: "number of ranges in the cycle, at least 1"},
		},
		New: newTimeGroupBy,
	}
}

func newTimeGroupBy(a Args) (GroupBy, error) {
	g := &TimeGroupBy{Size: a.Sampling("range_size"), Count: a.Long("group_count", 0)}
	var reasons []string
	if !a.Has("range_size") {
		reasons = append(reasons, "rangeSize may not be null")
	}
	if g.Count < 1 {
		reasons = append(reasons, "groupCount must be greater than or equal to 1")
	}
	if reasons != nil {
		return nil, &ArgumentError{reasons}
	}
	return g, nil
}

// A TimeGroupBy numbers points by the ranges of Size since the query's start,
// modulo Count. Zones do not matter. A year is 52 weeks; months are those of
// the UTC calendar, one by one, whatever Size.Value: all as in KairosDB.
type TimeGroupBy struct {
	Size  Sampling
	Count int64
}

func (*TimeGroupBy) groupBy() {}

func (g *TimeGroupBy) number(env *Env, p *Point) (int64, error) {
	if g.Size.Unit == Months {
		return monthsBetween(env.Range.StartMS, p.TimeMS) % g.Count, nil
	}
	size := saturatingMul(g.Size.Value, groupUnitMS(g.Size.Unit))
	if size <= 0 {
		return 0, &store.InputError{Reason: "range_size.value must be greater than 0"}
	}
	// Samples are in the query's range, whose length may exceed int64.
	return int64((uint64(p.TimeMS) - uint64(env.Range.StartMS)) / uint64(size) % uint64(g.Count)), nil
}

func groupUnitMS(u Unit) int64 {
	switch u {
	case Days:
		return dayMS
	case Weeks:
		return weekMS
	case Years:
		return 52 * weekMS
	}
	return u.fixedMS()
}

func monthsBetween(fromMS, toMS int64) int64 {
	from, to := time.UnixMilli(clampMS(fromMS)).UTC(), time.UnixMilli(clampMS(toMS)).UTC()
	return int64(to.Year()-from.Year())*12 + int64(to.Month()) - int64(from.Month())
}
