package query

import (
	"context"
	"slices"
	"strings"

	"varve/internal/model"
	"varve/internal/store"
)

// A groupPlan is a group before its samples are read.
type groupPlan struct {
	groupType string
	values    []string // of the tags of the tag group-by, "" where absent
	key       string   // name1+value1+name2+value2...: what KairosDB sorts by
	series    []store.Series
	count     int // of series
}

// planGroups splits series by group type, then by the tags of by (nil for none),
// in KairosDB's order: type, then the joined text of names and values. Groups
// whose joined texts collide stay apart, ordered by value.
//
// What the plan holds is taken from l.
func planGroups(r *Run, series []store.Series, by *TagGroupBy, l *lease) ([]*groupPlan, error) {
	if err := l.take(int64(len(series)) * seriesBytes); err != nil {
		return nil, err
	}
	groups, of, err := sortOut(r, series, by, l)
	if err != nil {
		return nil, err
	}
	dealt := make([]store.Series, len(series)) // all groups' series, one after the other
	for _, g := range groups {
		g.series, dealt = dealt[:0:g.count], dealt[g.count:]
	}
	for i, n := range of {
		groups[n].series = append(groups[n].series, series[i])
	}
	return groups, sortFunc(r, groups, (*groupPlan).compare)
}

// sortOut makes the groups, still without their series, and says which one each
// series is of.
func sortOut(r *Run, series []store.Series, by *TagGroupBy, l *lease) (groups []*groupPlan, of []int32, err error) {
	of = make([]int32, len(series))
	var index map[string]int32 // nil for a single series, which is a group of its own
	if len(series) > 1 {
		index = make(map[string]int32)
	}
	var id []byte
	values := make([]string, tagCount(by))
	var distinct []int
	if by != nil {
		distinct = by.Distinct()
	}
	for i := range series {
		if err := r.look(sortWork + len(values)); err != nil {
			return nil, nil, err
		}
		s := &series[i]
		kind := groupType(s.Type)
		id = append(append(id[:0], kind...), 0)
		for j := range values {
			values[j], _ = s.Tags.Get(by.Tags[j])
			id = append(append(id, values[j]...), 0)
		}
		n, ok := index[string(id)]
		if !ok {
			key := joined(by, distinct, values)
			if err := l.take(groupBytes + 2*int64(len(id)) + 16*int64(len(values)) + int64(len(key))); err != nil {
				return nil, nil, err
			}
			n = int32(len(groups))
			if index != nil {
				index[string(id)] = n
			}
			groups = append(groups, &groupPlan{groupType: kind, values: slices.Clone(values), key: key})
		}
		groups[n].count++
		of[i] = n
	}
	return groups, of, nil
}

// What a selected series and a planned group take, without the series' own
// strings, which the store holds.
const (
	seriesBytes = 2 * 72
	groupBytes  = 256
)

func tagCount(by *TagGroupBy) int {
	if by == nil {
		return 0
	}
	return len(by.Tags)
}

// joined is what groups are ordered by, as in KairosDB. A tag that is named twice
// counts once.
func joined(by *TagGroupBy, distinct []int, values []string) string {
	var b strings.Builder
	for _, i := range distinct {
		b.WriteString(by.Tags[i])
		b.WriteString(values[i])
	}
	return b.String()
}

// sort orders the series of a group, on which depends which of equal samples
// counts as the first.
func (g *groupPlan) sort(r *Run) error {
	return sortFunc(r, g.series, func(a, b store.Series) int { return a.Compare(b.Series) })
}

func (g *groupPlan) compare(o *groupPlan) int {
	if c := strings.Compare(g.groupType, o.groupType); c != 0 {
		return c
	}
	if c := model.CompareNames(g.key, o.key); c != 0 {
		return c
	}
	return slices.CompareFunc(g.values, o.values, model.CompareNames)
}

// TagValues are the values that a tag has in a set of series, sorted.
type TagValues struct {
	Name   string
	Values []string
}

// valueBytes is what a value takes that is collected, without its text, which the
// store holds.
const valueBytes = 64

// tagValues collects the tags of series, sorted by name. What they take is taken from
// l. look is called with the work of each series.
func tagValues(ctx context.Context, series []store.Series, l *lease, look func(work int) error) ([]TagValues, error) {
	if len(series) == 1 {
		return tagsOf(series[0].Tags), l.take(int64(series[0].Tags.Len()) * valueBytes)
	}
	var found, taken int64
	var columns []*tagColumn
	for n := range series {
		if n%1024 == 0 {
			if err := l.take((found - taken) * valueBytes); err != nil {
				return nil, err
			}
			if taken = found; ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		if err := look(series[n].Tags.Len()); err != nil {
			return nil, err
		}
		at := 0
		for name, value := range series[n].Tags.All() {
			// Series mostly have the same tags, and neighbours the same values.
			if at >= len(columns) || columns[at].name != name {
				columns, at = findColumn(columns, name)
			}
			if c := columns[at]; value != c.last {
				c.last = value
				before := len(c.seen)
				c.seen[value] = struct{}{}
				found += int64(len(c.seen) - before)
			}
			at++
		}
	}
	if err := l.take((found - taken) * valueBytes); err != nil {
		return nil, err
	}
	tags := make([]TagValues, 0, len(columns))
	for _, c := range columns {
		values := make([]string, 0, len(c.seen))
		for v := range c.seen {
			values = append(values, v)
		}
		if err := model.SortFunc(ctx, values, model.CompareNames); err != nil {
			return nil, err
		}
		if err := look(sortWork * len(values)); err != nil {
			return nil, err
		}
		tags = append(tags, TagValues{c.name, values})
	}
	return tags, model.SortFunc(ctx, tags, func(a, b TagValues) int { return model.CompareNames(a.Name, b.Name) })
}

// A tagColumn is one tag of many series.
type tagColumn struct {
	name string
	last string // the value seen last
	seen map[string]struct{}
}

// findColumn returns the place of a tag, new if need be.
func findColumn(columns []*tagColumn, name string) ([]*tagColumn, int) {
	for i, c := range columns {
		if c.name == name {
			return columns, i
		}
	}
	return append(columns, &tagColumn{name: name, seen: map[string]struct{}{}}), len(columns)
}

// tagsOf is tagValues of a single series, whose tags are sorted.
func tagsOf(t model.Tags) []TagValues {
	n := t.Len()
	tags, values := make([]TagValues, 0, n), make([]string, 0, n)
	for name, value := range t.All() {
		values = append(values, value)
		tags = append(tags, TagValues{name, values[len(values)-1:]})
	}
	return tags
}
