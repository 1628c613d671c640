package function

import (
	"fmt"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
)

func init() {
	const group = "Calculate"
	define(group, "aggregateLine(seriesList, [func:aggFunc=\"average\"], [keepStep:boolean=false])", "Draws a line at the aggregated value of each series.", aggregateLine)
	define(group, "nPercentile(seriesList, n:float)", "Draws a line at a percentile of each series.", nPercentile)
	define(group, "stdev(seriesList, points:integer, [windowTolerance:float=0.1])", "Takes the standard deviation of the last points; windowTolerance is the share of them that must not be null.", stdev)
	define(group, "linearRegression(seriesList, [startSourceAt:date], [endSourceAt:date])", "Draws the line of least squares through the values of the range, or of another one.", linearRegression)
	define(group, "identity(name:string)", "Makes a series whose values are their times.", identity)
}

func aggregateLine(c *call) (any, error) {
	list := c.list(0)
	_, aggregate := c.aggregation(1, "average")
	keepStep := c.boolean(2)
	return c.mapped(list, func(s *Series) (*Series, error) {
		value := aggregate(s.Values)
		shown := "None"
		if !numeric.IsNull(value) {
			shown = pytext.General(value)
		}
		name := fmt.Sprintf("aggregateLine(%s, %s)", s.Name, shown)
		if !keepStep {
			line, err := c.line(value, pytext.FormatFloat(value))
			if err == nil {
				line.rename(name)
			}
			return line, err
		}
		values, err := c.array(int64(len(s.Values)))
		numeric.Fill(values, value)
		return s.derive(name, values), err
	})
}

func nPercentile(c *call) (any, error) {
	list, n := c.list(0), c.float(1, 0)
	if c.err == nil && n == 0 {
		return nil, badParam("the requested percent is required to be greater than 0")
	}
	return c.mapped(list, func(s *Series) (*Series, error) {
		value, ok := numeric.Percentile(s.Values, n, false)
		if !ok {
			return nil, badParam("there is no percentile %s", pytext.General(n))
		}
		if numeric.IsNull(value) {
			return nil, nil
		}
		s.Tags.set("nPercentile", c.args[1])
		values, err := c.array((s.End - s.Start) / s.Step)
		numeric.Fill(values, value)
		return s.derive(fmt.Sprintf("nPercentile(%s, %s)", s.Name, pytext.General(n)), values), err
	})
}

func stdev(c *call) (any, error) {
	list, points, tolerance := c.list(0), c.integer(1, 0), c.float(2, 0.1)
	if c.err == nil && points <= 0 {
		return nil, badParam("the number of points must be positive")
	}
	return c.derive(list, func(s *Series, values []float64) string {
		s.Tags.set("stdev", points)
		numeric.Deviations(values, s.Values, points, tolerance)
		return fmt.Sprintf("stdev(%s,%d)", s.Name, points)
	})
}

func linearRegression(c *call) (any, error) {
	list := c.list(0)
	source := c.within(c.from, c.until)
	if c.given(1) {
		source.from = c.date(1)
	}
	if c.given(2) {
		source.until = c.date(2)
	}
	if c.err != nil {
		return nil, c.err
	}
	sources, err := c.argument(source)
	if err != nil {
		return nil, err
	}
	from, until := c.wall(source.from), c.wall(source.until)
	var out []*Series
	for i, s := range list[:min(len(list), len(sources))] {
		s.Tags["linearRegressions"] = fmt.Sprintf("%d, %d", from, until)
		slope, offset, ok := numeric.LeastSquares(sources[i].Values, sources[i].Start, sources[i].Step)
		if !ok {
			continue
		}
		values, err := c.array(int64(len(s.Values)))
		if err != nil {
			return nil, err
		}
		for k := range values {
			values[k] = offset + float64(s.Start+int64(k)*s.Step)*slope
		}
		line := s.derive(fmt.Sprintf("linearRegression(%s, %d, %d)", s.Name, from, until), values)
		line.Consolidation = "average"
		out = append(out, line)
	}
	return out, nil
}

func identity(c *call) (any, error) {
	name := c.str(0, "")
	s, err := c.generated(name, 60, func(at int64) float64 { return float64(at) })
	if err == nil {
		s.PathExpression = fmt.Sprintf(`identity("%s")`, name)
	}
	return one(s, err)
}
