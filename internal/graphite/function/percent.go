package function

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
)

// asPercent compares series with a total: their sum, a number, one series, as
// many series, or, with nodes, what has the same nodes in its path.
//
// Results have the step that the series had, though their values may be
// consolidated; Graphite does not correct that.
func asPercent(c *call) (any, error) {
	list := c.list(0)
	f, err := c.normalize(list)
	if err != nil {
		return nil, err
	}
	total, ok := c.args[1].([]*Series)
	switch {
	case len(c.rest) > 0 && c.given(1) && !ok:
		return nil, badParam("the total must be missing or a list of series if there are nodes")
	case len(c.rest) > 0:
		return c.percentByNodes(list, total, c.given(1))
	case !c.given(1):
		sum, err := c.eachRow(f.columns, f.rows, numeric.Sum)
		if err != nil {
			return nil, err
		}
		return c.percentOf(list, sum, "sumSeries("+expressions(list)+")")
	case ok:
		return c.percentOfSeries(list, total)
	}
	number := c.float(1, 0)
	constant, err := c.array(int64(len(list[0].Values)))
	if err != nil {
		return nil, err
	}
	numeric.Fill(constant, number)
	return c.percentOf(list, constant, pytext.Text(c.args[1]))
}

// percentOf compares all series with the same values.
func (c *call) percentOf(list []*Series, total []float64, name string) (any, error) {
	out := make([]*Series, 0, len(list))
	for _, s := range list {
		rows, err := s.Rows()
		if err != nil {
			return nil, err
		}
		values, err := c.eachPair(rows, total, numeric.Percent)
		if err != nil {
			return nil, err
		}
		name = cmp.Or(name, s.PathExpression)
		percent, err := c.made(fmt.Sprintf("asPercent(%s,%s)", s.Name, name), s.Start, s.End, s.Step, values)
		if err != nil {
			return nil, err
		}
		out = append(out, percent)
	}
	return out, nil
}

func (c *call) percentOfSeries(list, total []*Series) (any, error) {
	if len(total) != 1 && len(total) != len(list) {
		return nil, badParam("the total must be missing, a number, exactly 1 series, or as many series as there are values")
	}
	if len(total) == 1 {
		if _, err := c.normalize(list, total); err != nil {
			return nil, err
		}
		if len(list) > 1 {
			rows, err := total[0].Rows()
			if err != nil {
				return nil, err
			}
			return c.percentOf(list, rows, total[0].Name)
		}
	}
	// The same number of series: they are paired in the order of their names.
	return paired(byName(list), byName(total), c.percentPair)
}

func byName(list []*Series) []*Series {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b *Series) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (c *call) percentPair(s, total *Series) (*Series, error) {
	return c.folded(fmt.Sprintf("asPercent(%s,%s)", s.Name, total.Name), func(row []float64) float64 { return numeric.Percent(row[0], row[1]) }, s, total)
}

// percentByNodes compares each series with the sum of those of its group.
func (c *call) percentByNodes(list, total []*Series, given bool) (any, error) {
	groups, err := c.groupBy(list, c.rest)
	if err != nil {
		return nil, err
	}
	totals := groups
	if given {
		if totals, err = c.groupBy(total, c.rest); err != nil {
			return nil, err
		}
	}
	sums := map[string]*Series{}
	var last *Series // the grid of the comparison before
	for _, g := range totals {
		if sums[g.key], err = c.sumOfGroup(g.list); err != nil {
			return nil, err
		}
		if len(g.list) > 1 {
			last = sums[g.key]
		}
	}
	var out []*Series
	present := map[string]bool{}
	for _, g := range groups {
		present[g.key] = true
		for _, s := range g.list {
			var p *Series
			if sum := sums[g.key]; sum != nil {
				p, err = c.percentPair(s, sum)
				last = p
			} else {
				p, err = c.allNull("asPercent("+s.Name+",MISSING)", s, last)
			}
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	for _, g := range totals {
		if present[g.key] {
			continue
		}
		p, err := c.allNull("asPercent(MISSING,"+sums[g.key].Name+")", sums[g.key], last)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// allNull returns nulls in place of the rows of a series. The grid is that of
// the comparison before it, as in Graphite.
func (c *call) allNull(name string, s, last *Series) (*Series, error) {
	rows, err := s.Rows()
	if err != nil {
		return nil, err
	}
	values, err := c.array(int64(len(rows)))
	if err != nil {
		return nil, err
	}
	numeric.Fill(values, numeric.Null)
	last = cmp.Or(last, s)
	return c.made(name, last.Start, last.End, last.Step, values)
}

func (c *call) sumOfGroup(list []*Series) (*Series, error) {
	if len(list) == 1 {
		return list[0], nil
	}
	return c.folded("sumSeries("+expressions(list)+")", numeric.Sum, list...)
}
