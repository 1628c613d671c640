package function

import (
	"fmt"
	"strings"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
)

func init() {
	const group = "Special"
	define(group, "changed(seriesList)", "Is 1 where a value differs from the one before it, else 0.", changed)
	define(group, "consolidateBy(seriesList, consolidationFunc:string)", "Sets how values are merged when there are more than can be shown.", consolidateBy)
	define(group, "constantLine(value:float)", "Draws a horizontal line.", constantLine)
	define(group, "cumulative(seriesList)", "Adds values up when there are more than can be shown.", func(c *call) (any, error) { return consolidated(c, "sum") })
	define(group, "events(tags:string...)", "Counts events that have all the tags, second by second; * takes all events.", events)
	define(group, "fallbackSeries(seriesList, fallback)", "Takes other series if there are none.", fallbackSeries)
	define(group, "seriesByTag(tagExpressions:string...)", "Selects series by expressions such as name=disk.used and server=~web.*.", func(*call) (any, error) { return nil, badParam("seriesByTag is not a function of values") })
	define(group, "setXFilesFactor(seriesList, xFilesFactor:float)", "Sets the share of values that must not be null when series are merged or combined.", setXFilesFactor, "xFilesFactor")
}

func changed(c *call) (any, error) {
	return c.each(c.list(0), func(s *Series) error {
		s.rename("changed(" + s.Name + ")")
		previous := numeric.Null
		for i, v := range s.Values {
			s.Values[i] = 0
			switch {
			case numeric.IsNull(previous):
				previous = v
			case !numeric.IsNull(v) && v != previous:
				s.Values[i], previous = 1, v
			}
		}
		return nil
	})
}

func consolidateBy(c *call) (any, error) {
	name := c.str(1, "")
	return consolidated(c, name)
}

func consolidated(c *call, name string) (any, error) {
	return c.each(c.list(0), func(s *Series) error {
		s.Consolidation = name
		s.Tags["consolidateBy"] = name
		s.rename(fmt.Sprintf(`consolidateBy(%s,"%s")`, s.Name, name))
		return nil
	})
}

func constantLine(c *call) (any, error) {
	value := c.float(0, 0)
	return one(c.line(value, pytext.FormatFloat(value)))
}

// line returns a horizontal line of three points: at the beginning, in the
// middle and at the end of the range.
func (c *call) line(value float64, name string) (*Series, error) {
	values, err := c.array(3)
	if err != nil {
		return nil, err
	}
	from, until := c.bounds()
	step := (until - from) / 2
	if step == 0 {
		return nil, badParam("a line needs a range of two seconds at least")
	}
	numeric.Fill(values, value)
	s := newSeries(name, from, until, step, values, c.xFilesFactor)
	s.PathExpression = "constantLine(" + name + ")"
	return s, nil
}

func events(c *call) (any, error) {
	tags := make([]string, len(c.rest))
	for i, v := range c.rest {
		tag, ok := v.(string)
		if !ok {
			return nil, badParam("tags must be texts")
		}
		tags[i] = tag
	}
	name := `events("` + strings.Join(tags, `", "`) + `")`
	if len(tags) == 1 && tags[0] == "*" {
		tags = nil
	}
	s, err := c.generated(name, 1, func(int64) float64 { return numeric.Null })
	if err != nil {
		return nil, err
	}
	from, until := c.bounds()
	times, err := c.source.Events(c.ctx, tags, from, until)
	if err != nil {
		return nil, err
	}
	for _, at := range times {
		if at < from || at >= until {
			continue
		}
		if numeric.IsNull(s.Values[at-from]) {
			s.Values[at-from] = 0
		}
		s.Values[at-from]++
	}
	s.Consolidation = "sum"
	return []*Series{s}, nil
}

func fallbackSeries(c *call) (any, error) {
	list := c.list(0)
	if len(list) == 0 {
		list = c.list(1)
	}
	return list, c.err
}

// setXFilesFactor also holds for what is evaluated after it.
func setXFilesFactor(c *call) (any, error) {
	list, factor := c.list(0), c.float(1, 0)
	if c.err != nil {
		return nil, c.err
	}
	c.xFilesFactor = factor
	return c.each(list, func(s *Series) error {
		s.XFilesFactor = factor
		s.Tags.set("xFilesFactor", c.args[1])
		return nil
	})
}
