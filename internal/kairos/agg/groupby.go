package agg

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// A GroupBy splits the samples of a metric: a *TagGroupBy by series, a Splitter
// point by point.
type GroupBy interface{ groupBy() }

// A Splitter is a group-by of single points. Splitters combine: each combination of
// their numbers that occurs is a group.
type Splitter interface {
	GroupBy

	// number returns the number of the group that a point belongs to.
	number(env *Env, p *Point) (int64, error)
}

// A Label identifies a result's group in a group-by.
type Label struct {
	By     GroupBy
	Tags   []string // TagGroupBy: values of its tags, "" where a series has none
	Number int64    // Splitter: the group's number
}

// maxBins bounds the bins, which each group repeats.
const maxBins = 10_000

// binSpec groups points by the bin that their value falls into.
var binSpec = GroupBySpec{
	Name: "bin", Doc: "Points between the same two bounds of a list.",
	Properties: []Property{{Name: "bins", Kind: DoublesProperty, Doc: "bounds, ascending"}},
	New: func(a Args) (GroupBy, error) {
		bins := a.Doubles("bins")
		if n := len(bins); n > maxBins {
			return nil, &ArgumentError{[]string{fmt.Sprintf("bins may not be more than %d, not %d", maxBins, n)}}
		}
		top, tops := math.Inf(-1), make([]float64, len(bins))
		for i, v := range bins {
			if v-v != 0 { // NaN or infinite, which JSON has no text for
				return nil, &ArgumentError{[]string{fmt.Sprintf("bins must be finite numbers, not %v", v)}}
			}
			top = max(top, v)
			tops[i] = top
		}
		return &BinGroupBy{Bins: bins, tops: tops}, nil
	},
}

// A BinGroupBy numbers points 0 below Bins[0], i+1 from Bins[i] on. Points that are
// not numbers are in group -1.
type BinGroupBy struct {
	Bins []float64
	tops []float64 // tops[i] is the largest of Bins[:i+1]
}

func (*BinGroupBy) groupBy() {}

// number follows KairosDB even if bins are out of order: the first pair of neighbouring
// bins that contains the value counts; if there is none, the value is above all bins.
// That is the pair before the first bin above the value, since no earlier bin is above it.
func (g *BinGroupBy) number(_ *Env, p *Point) (int64, error) {
	if len(g.Bins) == 0 {
		return 0, &store.InputError{Reason: "bins may not be empty"}
	}
	if !p.Kind.Fixed() {
		return -1, nil
	}
	v := p.Float()
	return int64(sort.Search(len(g.tops), func(i int) bool { return g.tops[i] > v })), nil
}

// maxGroupTags bounds the lookups per series.
const maxGroupTags = 1000

// tagSpec groups series by the values of tags.
var tagSpec = GroupBySpec{
	Name: "tag", Doc: "Series with the same values of the tags.",
	Properties: []Property{{Name: "tags", Kind: TextsProperty, Doc: "names of the tags"}},
	New: func(a Args) (GroupBy, error) {
		tags := a.Texts("tags")
		switch {
		case tags == nil:
			return nil, &ArgumentError{[]string{"tags may not be null"}}
		case len(tags) == 0:
			return nil, &ArgumentError{[]string{"tags may not be empty"}}
		case len(tags) > maxGroupTags:
			return nil, &ArgumentError{[]string{fmt.Sprintf("tags may not be more than %d, not %d", maxGroupTags, len(tags))}}
		}
		return &TagGroupBy{Tags: tags}, nil
	},
}

// A TagGroupBy groups series with equal values of all Tags.
type TagGroupBy struct{ Tags []string }

func (*TagGroupBy) groupBy() {}

// Distinct lists the indexes in Tags at which a name occurs first.
func (g *TagGroupBy) Distinct() []int {
	places := make([]int, 0, len(g.Tags))
	if len(g.Tags) <= 8 {
		for i, name := range g.Tags {
			if !slices.Contains(g.Tags[:i], name) {
				places = append(places, i)
			}
		}
		return places
	}
	seen := make(map[string]struct{}, len(g.Tags))
	for i, name := range g.Tags {
		if _, ok := seen[name]; !ok {
			seen[name] = struct{}{}
			places = append(places, i)
		}
	}
	return places
}

// timeSpec groups points by their time since the start of the query.
var timeSpec = GroupBySpec{
	Name: "time", Doc: "Points in the same range of a repeating cycle of time ranges.",
	Properties: []Property{
		{Name: "range_size", Kind: SamplingProperty, Doc: "length of a range"},
		{Name: "group_count", Kind: IntProperty, Doc: "number of ranges in the cycle, at least 1"},
	},
	New: newTimeGroupBy,
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
		return calendar{time.UTC}.unitsBetween(env.Range.StartMS, p.TimeMS, Months) % g.Count, nil
	}
	size := saturatingMul(g.Size.Value, groupUnitMS(g.Size.Unit))
	if size <= 0 {
		return 0, &store.InputError{Reason: "range_size.value must be greater than 0"}
	}
	// Samples are in the query's range, whose length may exceed int64.
	return int64((uint64(p.TimeMS) - uint64(env.Range.StartMS)) / uint64(size) % uint64(g.Count)), nil
}

// final returns the last instant of the span of a time that is in one group. The query begins at startMS.
func (g *TimeGroupBy) final(startMS, ms int64) int64 {
	size := saturatingMul(g.Size.Value, groupUnitMS(g.Size.Unit))
	switch {
	case g.Size.Unit == Months:
		cal := calendar{time.UTC}
		return cal.add(startMS, cal.unitsBetween(startMS, ms, Months)+1, Months) - 1
	case size <= 0: // number refuses it
		return ms
	}
	return saturatingAdd(ms, size-1-int64((uint64(ms)-uint64(startMS))%uint64(size)))
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

// valueSpec groups points by their value.
var valueSpec = GroupBySpec{
	Name: "value", Doc: "Points with values in the same range.",
	Properties: []Property{{Name: "range_size", Kind: IntProperty, Doc: "size of a range, at least 1"}},
	New: func(a Args) (GroupBy, error) {
		size := a.Long("range_size", 0)
		if size < 1 {
			return nil, &ArgumentError{[]string{"rangeSize must be greater than or equal to 1"}}
		}
		return &ValueGroupBy{Size: size}, nil
	},
}

// A ValueGroupBy numbers points by value / Size, truncated towards zero. Points that
// are not numbers are in group -1.
type ValueGroupBy struct{ Size int64 }

func (*ValueGroupBy) groupBy() {}

// number follows KairosDB: for longs it is the low 32 bits of the quotient;
// doubles are first cut to 32 bits.
func (g *ValueGroupBy) number(_ *Env, p *Point) (int64, error) {
	switch p.Kind {
	case model.Long:
		return int64(int32(int64(p.Bits) / g.Size)), nil
	case model.Double:
		return int64(saturatedInt32(p.Float())) / g.Size, nil
	}
	return -1, nil
}

// saturatedInt32 is Java's conversion of a double to an int.
func saturatedInt32(v float64) int32 {
	switch {
	case math.IsNaN(v):
		return 0
	case v >= math.MaxInt32:
		return math.MaxInt32
	case v <= math.MinInt32:
		return math.MinInt32
	}
	return int32(v)
}
