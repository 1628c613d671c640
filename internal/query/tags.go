package query

import (
	"context"

	"varve/internal/model"
	"varve/internal/store"
)

// TagValues are the values that a tag has in a set of series, sorted.
type TagValues struct {
	Name   string
	Values []string
}

// valueBytes is what a value takes that is collected, without its text, which the
// store holds.
const valueBytes = 64

// TagValues collects the tags of series, sorted by name. What they and the list of
// series take is taken from l. The goroutine of the session calls it.
func (s *Session) TagValues(series []store.Series, l *Lease) ([]TagValues, error) {
	if err := l.Take(int64(len(series)) * SeriesBytes); err != nil {
		return nil, err
	}
	return tagValues(s.ctx, series, l, s.Tick)
}

// TagValuesBeside does what TagValues does, but does not let other queries have their
// turn, so that any goroutine may call it. The list of series is paid for.
func (s *Session) TagValuesBeside(series []store.Series, l *Lease) ([]TagValues, error) {
	return tagValues(s.ctx, series, l, func(int) error { return nil })
}

// tagValues collects tags. tick is called with the work of each series.
func tagValues(ctx context.Context, series []store.Series, l *Lease, tick func(work int) error) ([]TagValues, error) {
	if len(series) == 1 {
		return tagsOf(series[0].Tags), l.Take(int64(series[0].Tags.Len()) * valueBytes)
	}
	var found, taken int64
	var columns []*tagColumn
	for n := range series {
		if n%1024 == 0 {
			if err := l.Take((found - taken) * valueBytes); err != nil {
				return nil, err
			}
			if taken = found; ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		if err := tick(series[n].Tags.Len()); err != nil {
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
	if err := l.Take((found - taken) * valueBytes); err != nil {
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
		if err := tick(SortWork * len(values)); err != nil {
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
