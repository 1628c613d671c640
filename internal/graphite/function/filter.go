package function

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
	"varve/internal/graphite/target"
)

func init() {
	group := "Filter Data"
	define(group, "removeAbovePercentile(seriesList, n:float)", "Makes values above a percentile of their series null.", func(c *call) (any, error) { return removePercentile(c, true) })
	define(group, "removeBelowPercentile(seriesList, n:float)", "Makes values below a percentile of their series null.", func(c *call) (any, error) { return removePercentile(c, false) })
	define(group, "removeAboveValue(seriesList, n:float)", "Makes values above a number null.", func(c *call) (any, error) { return removeValues(c, true) })
	define(group, "removeBelowValue(seriesList, n:float)", "Makes values below a number null.", func(c *call) (any, error) { return removeValues(c, false) })

	group = "Filter Series"
	define(group, "filterSeries(seriesList, func:aggFunc, operator:string, threshold:float)", "Keeps series whose aggregated value compares so with a number.", filterSeries)
	for _, f := range [...]struct {
		name           string
		aggregate      numeric.Aggregation
		operator, what string
	}{
		{"averageAbove", numeric.Average, ">", "average is above"}, {"averageBelow", numeric.Average, "<=", "average is not above"},
		{"currentAbove", numeric.Last, ">", "last value is above"}, {"currentBelow", numeric.Last, "<=", "last value is not above"},
		{"maximumAbove", numeric.Max, ">", "greatest value is above"}, {"maximumBelow", numeric.Max, "<=", "greatest value is not above"},
		{"minimumAbove", numeric.Min, ">", "least value is above"}, {"minimumBelow", numeric.Min, "<=", "least value is not above"},
	} {
		define(group, f.name+"(seriesList, n:float)", "Keeps series whose "+f.what+" a number.", func(c *call) (any, error) {
			return c.filter(f.aggregate, operators[f.operator], c.float(1, 0))
		})
	}
	define(group, "highest(seriesList, n:integer, [func:aggFunc=\"average\"])", "Keeps the n series with the greatest aggregated values.", func(c *call) (any, error) { return highest(c, nil, true) })
	define(group, "lowest(seriesList, n:integer, [func:aggFunc=\"average\"])", "Keeps the n series with the least aggregated values.", func(c *call) (any, error) { return highest(c, nil, false) })
	for _, f := range [...]struct {
		name      string
		aggregate numeric.Aggregation
		what      string
		high      bool
	}{
		{"highestAverage", numeric.Average, "greatest averages", true}, {"highestCurrent", numeric.Last, "greatest last values", true},
		{"highestMax", numeric.Max, "greatest maxima", true}, {"lowestAverage", numeric.Average, "least averages", false}, {"lowestCurrent", numeric.Last, "least last values", false},
	} {
		define(group, f.name+"(seriesList, n:integer)", "Keeps the n series with the "+f.what+".", func(c *call) (any, error) { return highest(c, f.aggregate, f.high) })
	}
	define(group, "averageOutsidePercentile(seriesList, n:float)", "Keeps series whose average is outside the middle of all averages, from the percentile 100-n to n.", averageOutsidePercentile)
	define(group, "exclude(seriesList, pattern:string)", "Drops series whose name matches a regular expression.", func(c *call) (any, error) { return grep(c, false) })
	define(group, "grep(seriesList, pattern:string)", "Keeps series whose name matches a regular expression.", func(c *call) (any, error) { return grep(c, true) })
	define(group, "limit(seriesList, n:integer)", "Keeps the first n series.", limit)
	define(group, "mostDeviant(seriesList, n:integer)", "Keeps the n series with the greatest variance.", mostDeviant)
	define(group, "removeBetweenPercentile(seriesList, n:float)", "Keeps series of which one value at least is outside the middle of all, from the percentile 100-n to n.", removeBetweenPercentile)
	define(group, "removeEmptySeries(seriesList, [xFilesFactor:float])", "Drops series without values, or with too few.", removeEmptySeries)
	define(group, "unique(seriesLists...)", "Drops series whose name another one has before them.", unique)
	define(group, "useSeriesAbove(seriesList, value:float, search:string, replace:string)", "Makes paths of the names of series that exceed a value, and shows the series found there.", useSeriesAbove)
}

// remove makes the values to be removed null.
func (s *Series) remove(goes func(float64) bool) {
	for i, v := range s.Values {
		if goes(v) {
			s.Values[i] = numeric.Null
		}
	}
}

func beyond(bound float64, above bool) func(float64) bool {
	if above {
		return func(v float64) bool { return v > bound }
	}
	return func(v float64) bool { return v < bound }
}

func removePercentile(c *call, above bool) (any, error) {
	list, n := c.list(0), c.float(1, 0)
	if c.err == nil && n == 0 {
		return nil, badParam("the requested percent is required to be greater than 0")
	}
	return c.each(list, func(s *Series) error {
		s.rename(fmt.Sprintf("%s(%s, %s)", c.function.Name, s.Name, pytext.General(n)))
		bound, ok := numeric.Percentile(s.Values, n, false)
		if !ok || numeric.IsNull(bound) {
			return nil
		}
		s.Tags.set("nPercentile", c.args[1])
		s.remove(beyond(bound, above))
		return nil
	})
}

func removeValues(c *call, above bool) (any, error) {
	list, n := c.list(0), c.float(1, 0)
	return c.each(list, func(s *Series) error {
		s.rename(fmt.Sprintf("%s(%s, %s)", c.function.Name, s.Name, pytext.General(n)))
		s.remove(beyond(n, above))
		return nil
	})
}

// operators compare an aggregated value with a threshold. Null is below and
// unequal.
var operators = map[string]func(v, threshold float64) bool{
	"=":  func(v, threshold float64) bool { return v == threshold },
	"!=": func(v, threshold float64) bool { return v != threshold },
	">":  func(v, threshold float64) bool { return v > threshold },
	">=": func(v, threshold float64) bool { return v >= threshold },
	"<":  func(v, threshold float64) bool { return !(v >= threshold) },
	"<=": func(v, threshold float64) bool { return !(v > threshold) },
}

func filterSeries(c *call) (any, error) {
	_, aggregate := c.aggregation(1, "")
	name := c.str(2, "")
	operator, ok := operators[name]
	if c.err == nil && !ok {
		return nil, badParam("unsupported operator: %.64s", name)
	}
	return c.filter(aggregate, operator, c.float(3, 0))
}

func (c *call) filter(aggregate numeric.Aggregation, operator func(v, threshold float64) bool, threshold float64) (any, error) {
	return c.keep(c.list(0), func(s *Series) bool { return operator(aggregate(s.Values), threshold) })
}

// keep returns the series that fit.
func (c *call) keep(list []*Series, fits func(*Series) bool) (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	var out []*Series
	for _, s := range list {
		if err := c.look(); err != nil {
			return nil, err
		}
		if fits(s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// highest sorts series and cuts the list. If aggregate is nil, the aggregation
// is an argument.
func highest(c *call, aggregate numeric.Aggregation, descending bool) (any, error) {
	list, n := c.list(0), c.truncated(1, 1)
	if aggregate == nil {
		_, aggregate = c.aggregation(2, "average")
	}
	if c.err != nil {
		return nil, c.err
	}
	sorted, err := c.sortBy(list, aggregate, descending)
	return cut(sorted, 0, n), err
}

func averageOutsidePercentile(c *call) (any, error) {
	list, n := c.list(0), c.float(1, 0)
	if n < 50 {
		n = 100 - n
	}
	averages := make([]float64, len(list))
	for i, s := range list {
		averages[i] = numeric.Average(s.Values)
	}
	low, lowOK := numeric.Percentile(averages, 100-n, false)
	high, highOK := numeric.Percentile(averages, n, false)
	if c.err == nil && !(lowOK && highOK) {
		return nil, badParam("there is no percentile %s of %d series", pytext.General(n), len(list))
	}
	return c.keep(list, func(s *Series) bool {
		v := numeric.Average(s.Values)
		return !(low < v && v < high)
	})
}

// removeBetweenPercentile compares values with those of all series at the same
// index. Nulls do not count.
func removeBetweenPercentile(c *call) (any, error) {
	list, n := c.list(0), c.float(1, 0)
	if n < 50 {
		n = 100 - n
	}
	if c.err != nil || len(list) == 0 {
		return nil, cmp.Or(c.err, errNothing)
	}
	columns := make([][]float64, len(list))
	rows := len(list[0].Values)
	for i, s := range list {
		columns[i] = s.Values
		rows = min(rows, len(s.Values))
	}
	outside := make([]bool, len(list))
	possible := true
	_, err := c.eachRow(columns, rows, func(row []float64) float64 {
		low, lowOK := numeric.Percentile(row, 100-n, false)
		high, highOK := numeric.Percentile(row, n, false)
		possible = possible && lowOK && highOK
		for i, v := range row {
			outside[i] = outside[i] || v <= low || v >= high
		}
		return numeric.Null
	})
	if err != nil {
		return nil, err
	}
	if !possible {
		return nil, badParam("there is no percentile %s of %d series", pytext.General(n), len(list))
	}
	i := -1
	return c.keep(list, func(*Series) bool {
		i++
		return outside[i]
	})
}

func grep(c *call, keep bool) (any, error) {
	p, list := c.pattern(1), c.list(0)
	var fault error
	kept, err := c.keep(list, func(s *Series) bool {
		matches, err := p.Matches(s.Name)
		fault = cmp.Or(fault, err)
		return matches == keep
	})
	return kept, cmp.Or(err, asParam(fault))
}

// count returns how many series to keep; none means all.
func (c *call) count(list []*Series) int64 {
	if !c.given(1) {
		return int64(len(list))
	}
	return c.integer(1, 0)
}

func limit(c *call) (any, error) {
	list := c.list(0)
	n := c.count(list)
	return cut(list, 0, n), nil
}

func mostDeviant(c *call) (any, error) {
	list := c.list(0)
	n := c.count(list)
	present := slices.DeleteFunc(slices.Clone(list), func(s *Series) bool { return numeric.IsNull(numeric.Variance(s.Values)) })
	sorted, err := c.sortBy(present, numeric.Variance, true)
	return cut(sorted, 0, n), err
}

func removeEmptySeries(c *call) (any, error) {
	list, xFilesFactor := c.list(0), c.factor(1, 0)
	return c.keep(list, func(s *Series) bool {
		return numeric.Enough(numeric.Present(s.Values), float64(len(s.Values)), xFilesFactor)
	})
}

func unique(c *call) (any, error) {
	seen := map[string]bool{}
	return c.keep(slices.Concat(c.lists()...), func(s *Series) bool {
		known := seen[s.Name]
		seen[s.Name] = true
		return !known
	})
}

// exprBytes is what a parsed expression takes at most for each byte of its text, about.
const exprBytes = 32

func useSeriesAbove(c *call) (any, error) {
	list, value, p, replace := c.list(0), c.float(1, 0), c.pattern(2), c.str(3, "")
	if c.err != nil {
		return nil, c.err
	}
	r, err := p.NewReplacement(replace)
	if err != nil {
		return nil, asParam(err)
	}
	group := &target.Call{Name: "group"}
	for _, s := range list {
		if err := c.look(); err != nil {
			return nil, err
		}
		name, err := p.Replace(s.Name, r)
		if err != nil {
			return nil, asParam(err)
		}
		if !(numeric.Max(s.Values) > value) {
			continue
		}
		if err := c.reserve(exprBytes * int64(len(name))); err != nil {
			return nil, err
		}
		e, err := target.Parse(strings.TrimSpace(name))
		if err != nil {
			return nil, badParam("%v", err)
		}
		group.Args = append(group.Args, e)
	}
	if len(group.Args) == 0 {
		return nil, errNothing
	}
	found, err := c.within(c.from, c.until).again(group, nil)
	if err != nil {
		return nil, err
	}
	return c.keep(found, func(s *Series) bool { return len(s.Values) > 0 })
}
