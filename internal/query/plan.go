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
}

// planGroups splits series by group type, then by the tags of by (nil for none),
// in KairosDB's order: type, then the joined text of names and values. Groups
// whose joined texts collide stay apart, ordered by value.
//
// What the plan holds is taken from l.
func planGroups(ctx context.Context, series []store.Series, by *TagGroupBy, l *lease) ([]*groupPlan, error) {
	var groups []*groupPlan
	index := map[string]*groupPlan{}
	var id []byte
	values := make([]string, tagCount(by))
	if err := l.take(int64(len(series)) * seriesBytes); err != nil {
		return nil, err
	}
	for n, s := range series {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		kind := groupType(s.Type)
		id = append(append(id[:0], kind...), 0)
		for i := range values {
			values[i], _ = s.Tags.Get(by.Tags[i])
			id = append(append(id, values[i]...), 0)
		}
		g := index[string(id)]
		if g == nil {
			if err := l.take(groupBytes); err != nil {
				return nil, err
			}
			g = &groupPlan{groupType: kind, values: slices.Clone(values), key: joined(by, values)}
			index[string(id)] = g
			groups = append(groups, g)
		}
		g.series = append(g.series, s)
	}
	return groups, model.SortFunc(ctx, groups, (*groupPlan).compare)
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

func joined(by *TagGroupBy, values []string) string {
	var b strings.Builder
	for i, v := range values {
		b.WriteString(by.Tags[i])
		b.WriteString(v)
	}
	return b.String()
}

// sort orders the series of a group, on which depends which of equal samples
// counts as the first.
func (g *groupPlan) sort(ctx context.Context) error {
	return model.SortFunc(ctx, g.series, func(a, b store.Series) int { return a.Compare(b.Series) })
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

// tagValues collects the tags of series, sorted by name.
func tagValues(ctx context.Context, series []store.Series) ([]TagValues, error) {
	type column struct {
		name string
		last string // the value seen last: series come sorted, so it repeats
		seen map[string]struct{}
	}
	var columns []*column
	byName := map[string]*column{}
	for n, s := range series {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		at := 0
		for name, value := range s.Tags.All() {
			var c *column
			if at < len(columns) && columns[at].name == name {
				c = columns[at]
			} else if c = byName[name]; c == nil {
				c = &column{name: name, seen: map[string]struct{}{}}
				byName[name] = c
				columns = append(columns, c)
			}
			at++
			if value == c.last && len(c.seen) > 0 {
				continue
			}
			c.last = value
			c.seen[value] = struct{}{}
		}
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
		tags = append(tags, TagValues{c.name, values})
	}
	return tags, model.SortFunc(ctx, tags, func(a, b TagValues) int { return model.CompareNames(a.Name, b.Name) })
}
