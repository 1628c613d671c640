package function

import (
	"cmp"
	"fmt"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
	"varve/internal/graphite/timespec"
)

func init() {
	const group = "Graph"
	define(group, "alpha(seriesList, alpha:float)", "Sets how opaque series are drawn.", alpha)
	define(group, "areaBetween(seriesList)", "Fills the area between two series.", areaBetween)
	define(group, "color(seriesList, theColor:string)", "Sets the colour of series.", color)
	define(group, "dashed(seriesList, [dashLength:integer=5])", "Draws series as dashed lines.", dashed)
	define(group, "drawAsInfinite(seriesList)", "Draws a vertical line at each value that is not zero.", marking("drawAsInfinite", func(o *Options) { o.DrawAsInfinite = true }))
	define(group, "lineWidth(seriesList, width:float)", "Sets the width of lines.", lineWidth)
	define(group, "secondYAxis(seriesList)", "Draws series on the second vertical axis.", marking("secondYAxis", func(o *Options) { o.SecondYAxis = true }))
	define(group, "stacked(seriesList, [stack:string])", "Draws series on top of each other.", stacked)
	define(group, "threshold(value:float, [label:string], [color:string])", "Draws a horizontal line.", threshold)
	define(group, "verticalLine(ts:date, [label:string], [color:string])", "Draws a vertical line at a time.", verticalLine)
}

func alpha(c *call) (any, error) {
	v := c.optional(1)
	return c.each(c.list(0), func(s *Series) error { s.Options.Alpha = v; return nil })
}

func lineWidth(c *call) (any, error) {
	v := c.optional(1)
	return c.each(c.list(0), func(s *Series) error { s.Options.LineWidth = v; return nil })
}

// optional returns a number, or nil for none.
func (c *call) optional(i int) *float64 {
	if !c.given(i) {
		return nil
	}
	v := c.float(i, 0)
	return &v
}

func color(c *call) (any, error) {
	list, v := c.list(0), c.str(1, "")
	return c.each(list, func(s *Series) error { s.Options.Color = v; return nil })
}

func areaBetween(c *call) (any, error) {
	list := c.list(0)
	return list, between(list)
}

// between makes two series the edges of an area.
func between(list []*Series) error {
	if len(list) != 2 {
		return badParam("the argument must be exactly 2 series, not %d", len(list))
	}
	lower, upper := list[0], list[1]
	lower.Options.Stacked, lower.Options.Invisible, upper.Options.Stacked = true, true, true
	upper.Tags["areaBetween"] = "1"
	lower.Tags = upper.Tags
	lower.Name = "areaBetween(" + upper.PathExpression + ")"
	upper.Name = lower.Name
	return nil
}

func dashed(c *call) (any, error) {
	list, length := c.list(0), c.float(1, 5)
	var shown any = int64(5)
	if c.given(1) {
		shown = c.args[1]
	}
	return c.each(list, func(s *Series) error {
		s.Tags.set("dashed", shown)
		s.Name = fmt.Sprintf("dashed(%s, %s)", s.Name, pytext.General(length))
		s.Options.Dashed = &length
		return nil
	})
}

// marking is a function that sets an option of series, and says so in its tags and its name.
func marking(name string, set func(*Options)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		return c.each(c.list(0), func(s *Series) error {
			set(&s.Options)
			s.Tags[name] = "1"
			s.Name = name + "(" + s.Name + ")"
			return nil
		})
	}
}

const defaultStack = "__DEFAULT__"

// stacked adds series to those that are on the same stack already, also those
// of other targets.
func stacked(c *call) (any, error) {
	list, stack := c.list(0), defaultStack
	switch x := c.args[1].(type) {
	case absent:
	case []*Series:
		c.fail(1, "a text")
	default: // None and numbers are names, too
		stack = pytext.Text(x)
	}
	sums := c.stacks[stack]
	out, err := c.derive(list, func(s *Series, values []float64) string {
		for i, v := range s.Values {
			if i >= len(sums) {
				sums = append(sums, 0)
			}
			values[i] = numeric.Null
			if !numeric.IsNull(v) {
				sums[i] += v
				values[i] = sums[i]
			}
		}
		if stack != defaultStack {
			return s.Name
		}
		s.Tags["stacked"] = stack
		return "stacked(" + s.Name + ")"
	})
	if err != nil {
		return nil, err
	}
	c.stacks[stack] = sums
	for _, s := range out.([]*Series) {
		s.Options.Stacked = true
	}
	return out, nil
}

func threshold(c *call) (any, error) {
	value := c.float(0, 0)
	s, err := c.line(value, pytext.FormatFloat(value))
	if err == nil && c.given(1) && c.str(1, "") != "" {
		s.Name = c.str(1, "")
	}
	if err == nil && c.given(2) {
		s.Options.Color = c.str(2, "")
	}
	return one(s, cmp.Or(c.err, err))
}

func verticalLine(c *call) (any, error) {
	at, err := timespec.Parse(c.str(0, ""), c.request.Now, c.from.Location())
	if c.err != nil || err != nil {
		return nil, cmp.Or(c.err, asParam(err))
	}
	from, until, ts := c.wall(c.from), c.wall(c.until), c.wall(at)
	switch {
	case ts < from:
		return nil, badParam("the timestamp %d is before the start of the range", ts)
	case ts > until:
		return nil, badParam("the timestamp %d is behind the end of the range", ts)
	}
	s := newSeries(unlabelled, ts, ts, 1, []float64{1, 1}, c.xFilesFactor)
	s.noLabel = true
	if c.given(1) {
		s = newSeries(c.str(1, ""), ts, ts, 1, s.Values, c.xFilesFactor)
	}
	s.Options.DrawAsInfinite = true
	if c.given(2) {
		s.Options.Color = c.str(2, "")
	}
	return one(s, c.err)
}
