package query

import (
	"context"
	"maps"
	"slices"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// TagValues are the values that a tag has in a set of series, sorted.
type TagValues struct {
	Name   string
	Values []string
}

// valueBytes is the memory of a collected value without its text, which the store
// holds.
const valueBytes = 64

// keptBytes is the memory that a store may keep for a series that it has yielded. The
// store over Cassandra keeps it until the end of the session.
const keptBytes = 72

// SelectTags collects the tags of the series that match, sorted by name; the order of
// the selection does not matter. It keeps no list of the series. The memory of the tags,
// and the memory that the store may keep, is taken from l. Only the goroutine of the
// session may call SelectTags.
func (s *Session) SelectTags(want store.Selection, l *Lease) ([]TagValues, error) {
	defer since(&s.trace.index, time.Now())
	want.AnyOrder = true
	c := tagCollector{ctx: s.ctx, lease: l, session: s, seriesBytes: keptBytes}
	for one, err := range s.limited(want) {
		if err == nil {
			err = c.add(one.Tags)
		}
		if err != nil {
			s.series.Add(int64(c.n))
			return nil, s.Cause(err)
		}
	}
	s.series.Add(int64(c.n))
	if err := s.Yield(); err != nil {
		return nil, s.Cause(err)
	}
	return c.result()
}

// TagValuesOf collects the tags of series, sorted by name. It gives other queries no
// turn, so any goroutine may call it. The memory of the tags is taken from l; the caller
// has already taken that of the list of series.
func (s *Session) TagValuesOf(series []store.Series, l *Lease) ([]TagValues, error) {
	c := tagCollector{ctx: s.ctx, lease: l}
	for i := range series {
		if err := c.add(series[i].Tags); err != nil {
			return nil, err
		}
	}
	return c.result()
}

// A tagCollector collects the tags of series.
type tagCollector struct {
	ctx         context.Context
	lease       *Lease
	session     *Session // that lets others have their turn; nil if it does not
	seriesBytes int64    // to be taken for each series

	n       int        // series
	first   model.Tags // of the first series, in columns once there is a second
	columns []*tagColumn
	found   int64 // values
	charged int64 // bytes
}

func (c *tagCollector) tick(work int) error {
	if c.session == nil {
		return nil
	}
	return c.session.Tick(work)
}

// lookTags is how many series are collected between two checks of context and memory.
const lookTags = 1024

func (c *tagCollector) add(tags model.Tags) error {
	c.n++
	switch c.n {
	case 1:
		c.first = tags
		return nil
	case 2:
		if err := c.put(c.first); err != nil {
			return err
		}
	}
	if c.n%lookTags == 0 {
		if err := c.charge(); err != nil {
			return err
		}
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
	}
	return c.put(tags)
}

func (c *tagCollector) put(tags model.Tags) error {
	at := 0
	for name, value := range tags.All() {
		// Series mostly have the same tags, and neighbours the same values.
		if at >= len(c.columns) || c.columns[at].name != name {
			c.columns, at = findColumn(c.columns, name)
		}
		if column := c.columns[at]; value != column.last {
			column.last = value
			before := len(column.seen)
			column.seen[value] = struct{}{}
			c.found += int64(len(column.seen) - before)
		}
		at++
	}
	return c.tick(at)
}

// charge takes the memory of the tags that were found since the last call.
func (c *tagCollector) charge() error {
	bytes := c.found*valueBytes + int64(c.n)*c.seriesBytes
	err := c.lease.Take(bytes - c.charged)
	c.charged = bytes
	return err
}

func (c *tagCollector) result() ([]TagValues, error) {
	if c.n == 1 {
		c.found = int64(c.first.Len())
		return tagsOf(c.first), c.charge()
	}
	if err := c.charge(); err != nil {
		return nil, err
	}
	tags := make([]TagValues, 0, len(c.columns))
	for _, column := range c.columns {
		values := slices.AppendSeq(make([]string, 0, len(column.seen)), maps.Keys(column.seen))
		if err := model.SortFunc(c.ctx, values, model.CompareNames); err != nil {
			return nil, err
		}
		if err := c.tick(SortWork * len(values)); err != nil {
			return nil, err
		}
		tags = append(tags, TagValues{column.name, values})
	}
	return tags, model.SortFunc(c.ctx, tags, func(a, b TagValues) int { return model.CompareNames(a.Name, b.Name) })
}

// A tagColumn is one tag of many series.
type tagColumn struct {
	name string
	last string // the value seen last
	seen map[string]struct{}
}

// findColumn returns the position of a tag, new if need be.
func findColumn(columns []*tagColumn, name string) ([]*tagColumn, int) {
	for i, c := range columns {
		if c.name == name {
			return columns, i
		}
	}
	return append(columns, &tagColumn{name: name, seen: map[string]struct{}{}}), len(columns)
}

// tagsOf are the tags of a single series, which are sorted.
func tagsOf(t model.Tags) []TagValues {
	n := t.Len()
	tags, values := make([]TagValues, 0, n), make([]string, 0, n)
	for name, value := range t.All() {
		values = append(values, value)
		tags = append(tags, TagValues{name, values[len(values)-1:]})
	}
	return tags
}
