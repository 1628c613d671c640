package function

import (
	"fmt"
	"slices"
	"strings"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
)

func init() {
	defineCombining("sumSeries(seriesLists...)", "Adds series up.", combining("sum"), "sum")
	defineCombining("averageSeries(seriesLists...)", "Averages series.", combining("average"), "avg")
	defineCombining("minSeries(seriesLists...)", "Takes the least value of all series.", combining("min"))
	defineCombining("maxSeries(seriesLists...)", "Takes the greatest value of all series.", combining("max"))
	defineCombining("diffSeries(seriesLists...)", "Subtracts all further series from the first.", combining("diff"))
	defineCombining("stddevSeries(seriesLists...)", "Takes the standard deviation over all series.", combining("stddev"))
	defineCombining("rangeOfSeries(seriesLists...)", "Subtracts the least value of all series from the greatest.", combining("rangeOf"))
	defineCombining("multiplySeries(seriesLists...)", "Multiplies series; where one is null, so is the product.", multiplySeries)
	defineCombining("powSeries(seriesList...)", "Raises the first series to the power of the second, the result to that of the third, and so on.", powSeries)
	defineCombining("countSeries([seriesLists...])", "Counts series.", countSeries)
	defineCombining("sumSeriesLists(seriesListFirstPos, seriesListSecondPos)", "Adds the series of two lists up, pair by pair.", pairing("sum"))
	defineCombining("diffSeriesLists(seriesListFirstPos, seriesListSecondPos)", "Subtracts the series of the second list from those of the first, pair by pair.", pairing("diff"))
	defineCombining("multiplySeriesLists(seriesListFirstPos, seriesListSecondPos)", "Multiplies the series of two lists, pair by pair.", pairing("multiply"))
	defineCombining("sumSeriesWithWildcards(seriesList, [position:node...])", "Adds series up whose paths are equal without the nodes at some places.", withWildcards("sum"))
	defineCombining("averageSeriesWithWildcards(seriesList, [position:node...])", "Averages series whose paths are equal without the nodes at some places.", withWildcards("average"))
	defineCombining("multiplySeriesWithWildcards(seriesList, [position:node...])", "Multiplies series whose paths are equal without the nodes at some places.", withWildcards("multiply"))
	defineCombining("asPercent(seriesList, [total:any], [nodes:nodeOrTag...])", "Takes values as percentages of the sum of all series, of a number, or of other series, also group by group.", asPercent, "pct")

	for _, name := range [...]string{"sumSeries", "sum", "averageSeries", "avg", "minSeries", "maxSeries", "diffSeries", "stddevSeries", "rangeOfSeries", "countSeries"} {
		registry[name].reads = true
	}

	const group = "Combine"
	define(group, "aggregate(seriesList, func:aggFunc, [xFilesFactor:float])", "Combines series by an aggregation.", aggregate)
	define(group, "aggregateSeriesLists(seriesListFirstPos, seriesListSecondPos, func:aggFunc, [xFilesFactor:float])", "Combines the series of two lists by an aggregation, pair by pair.", aggregateSeriesLists)
	define(group, "aggregateWithWildcards(seriesList, func:aggFunc, [position:node...])", "Combines series whose paths are equal without the nodes at some places.", aggregateWithWildcards)
	define(group, "divideSeries(dividendSeriesList, divisorSeries)", "Divides all series by one.", divideSeries)
	define(group, "divideSeriesLists(dividendSeriesList, divisorSeriesList)", "Divides the series of the first list by those of the second, pair by pair.", divideSeriesLists)
	define(group, "percentileOfSeries(seriesList, n:float, [interpolate:boolean=false])", "Takes a percentile over all series.", percentileOfSeries)
	define(group, "weightedAverage(seriesListAvg, seriesListWeight, [nodes:nodeOrTag...])", "Averages series, weighted by others whose paths have the same nodes.", weightedAverage)
	define(group, "group([seriesLists...])", "Makes one list of several.", groupLists)
}

// A frame brings series with different steps together: it has their rows at the
// least common multiple of the steps.
type frame struct {
	list             []*Series
	columns          [][]float64
	start, end, step int64
	rows             int
}

// normalize consolidates series to their common step. Rows are matched by index, not by
// time: the first rows belong together.
func (c *call) normalize(lists ...[]*Series) (*frame, error) {
	f := &frame{list: slices.Concat(lists...), step: 1}
	if len(f.list) == 0 {
		return nil, errNothing
	}
	f.start, f.end, f.step = f.list[0].Start, f.list[0].End, f.list[0].Step
	for _, s := range f.list {
		f.start, f.end = min(f.start, s.Start), max(f.end, s.End)
		f.step = numeric.LCM(f.step, s.Step)
		if f.step > numeric.MaxStep || f.step <= 0 {
			return nil, badParam("the steps of the series have no common multiple below %d seconds", int64(numeric.MaxStep))
		}
	}
	f.end -= numeric.FloorMod(f.end-f.start, f.step)
	for _, s := range f.list {
		s.Consolidate(int(f.step / s.Step))
	}
	return f, c.fill(f)
}

// fill reads the rows of a frame.
func (c *call) fill(f *frame) error {
	f.columns = make([][]float64, len(f.list))
	for i, s := range f.list {
		if s.PerPoint() > 1 {
			if err := c.reserve(int64(8 * len(s.Values) / s.PerPoint())); err != nil {
				return err
			}
		}
		rows, err := s.Rows()
		if err != nil {
			return err
		}
		f.columns[i] = rows
		f.rows = max(f.rows, len(rows))
	}
	return nil
}

// eachRow calls fold with every row, see [numeric.EachRow].
func (c *call) eachRow(columns [][]float64, rows int, fold numeric.Aggregation) ([]float64, error) {
	out, err := c.array(int64(rows))
	if err != nil {
		return nil, err
	}
	return out, numeric.EachRow(out, columns, fold, c.look)
}

// eachPair calls fold with each value of two columns.
func (c *call) eachPair(a, b []float64, fold func(a, b float64) float64) ([]float64, error) {
	return c.eachRow([][]float64{a, b}, max(len(a), len(b)), func(row []float64) float64 { return fold(row[0], row[1]) })
}

// reduce aggregates the rows of a frame. Sums and extremes, which dashboards
// use most, are computed series by series, which reads memory in sequence.
func (c *call) reduce(f *frame, name string, aggregate numeric.Aggregation, xFilesFactor float64) ([]float64, error) {
	accumulate, ok := numeric.AccumulatorOf(name)
	if !ok {
		return c.eachRow(f.columns, f.rows, func(row []float64) float64 {
			if !numeric.Enough(numeric.Present(row), float64(len(row)), xFilesFactor) {
				return numeric.Null
			}
			return aggregate(row)
		})
	}
	out, err := c.array(int64(f.rows))
	if err != nil {
		return nil, err
	}
	if err := c.reserve(int64(4 * f.rows)); err != nil {
		return nil, err
	}
	counts := make([]int32, f.rows)
	for _, column := range f.columns {
		if err := c.look(); err != nil {
			return nil, err
		}
		accumulate(out, counts, column)
	}
	for i, n := range counts {
		switch {
		case !numeric.Enough(int(n), float64(len(f.columns)), xFilesFactor):
			out[i] = numeric.Null
		case name == "average" || name == "avg":
			out[i] /= float64(n)
		}
	}
	return out, nil
}

// folded combines several series into one, by applying fold to their rows.
func (c *call) folded(name string, fold numeric.Aggregation, list ...*Series) (*Series, error) {
	f, err := c.normalize(list)
	if err != nil {
		return nil, err
	}
	values, err := c.eachRow(f.columns, f.rows, fold)
	if err != nil {
		return nil, err
	}
	return c.made(name, f.start, f.end, f.step, values)
}

// paired calls f for the series of two lists, pair by pair. Both lists must have the same
// length.
func paired(first, second []*Series, f func(a, b *Series) (*Series, error)) (any, error) {
	if len(first) != len(second) {
		return nil, badParam("both lists must have as many series: they have %d and %d", len(first), len(second))
	}
	out := make([]*Series, len(first))
	for i, a := range first {
		var err error
		if out[i], err = f(a, second[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// expressions joins the distinct path expressions of series.
func expressions(list []*Series) string {
	seen := map[string]bool{}
	var out []string
	for _, s := range list {
		if !seen[s.PathExpression] {
			seen[s.PathExpression] = true
			out = append(out, s.PathExpression)
		}
	}
	return strings.Join(out, ",")
}

// combine aggregates series to one. The name may end in Series.
func (c *call) combine(function string, xFilesFactor float64, lists ...[]*Series) (*Series, error) {
	name := strings.TrimSuffix(function, "Series")
	aggregate, ok := numeric.Named(name)
	if !ok {
		return nil, badParam("unsupported aggregation function: %.64s", function)
	}
	f, err := c.normalize(lists...)
	if err != nil {
		return nil, err
	}
	values, err := c.reduce(f, name, aggregate, xFilesFactor)
	if err != nil {
		return nil, err
	}
	title := name + "Series(" + expressions(f.list) + ")"
	if err := c.reserve(int64(len(title))); err != nil {
		return nil, err
	}
	tags := common(f.list)
	if _, ok := tags["name"]; !ok {
		tags["name"] = title
	}
	tags["aggregatedBy"] = name
	s := newSeries(title, f.start, f.end, f.step, values, xFilesFactor)
	s.Tags = tags
	return s, nil
}

// combining is a function that aggregates all its series to one.
func combining(name string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		lists := c.lists()
		return one(c.combine(name, c.xFilesFactor, lists...))
	}
}

// one returns a list with one series.
func one(s *Series, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return []*Series{s}, nil
}

// factor returns an xFilesFactor, or without if it was not given, or is none.
func (c *call) factor(i int, without float64) float64 {
	if c.given(i) {
		return c.float(i, 0)
	}
	return without
}

func aggregate(c *call) (any, error) {
	list, name, xFilesFactor := c.list(0), c.str(1, ""), c.factor(2, c.xFilesFactor)
	return one(c.combine(name, xFilesFactor, list))
}

func multiplySeries(c *call) (any, error) {
	lists := c.lists()
	if len(lists) == 1 && len(lists[0]) == 1 {
		return lists[0], nil
	}
	return one(c.combine("multiply", c.xFilesFactor, lists...))
}

// pairing is a function that aggregates the series of two lists pair by pair.
func pairing(name string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		first, second := c.list(0), c.list(1)
		return c.pair(name, c.xFilesFactor, first, second)
	}
}

func aggregateSeriesLists(c *call) (any, error) {
	first, second, name, xFilesFactor := c.list(0), c.list(1), c.str(2, ""), c.factor(3, c.xFilesFactor)
	return c.pair(name, xFilesFactor, first, second)
}

func (c *call) pair(name string, xFilesFactor float64, first, second []*Series) (any, error) {
	return paired(first, second, func(a, b *Series) (*Series, error) {
		s, err := c.combine(name, xFilesFactor, []*Series{a, b})
		if err != nil {
			return nil, err
		}
		s.Name = fmt.Sprintf("%sSeries(%s,%s)", strings.TrimSuffix(name, "Series"), a.Name, b.Name)
		return s, c.reserve(int64(len(s.Name)))
	})
}

func withWildcards(name string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		list := c.list(0)
		return c.wildcards(name, list)
	}
}

func aggregateWithWildcards(c *call) (any, error) {
	list, name := c.list(0), c.str(1, "")
	return c.wildcards(name, list)
}

// wildcards combines series whose names are equal without some nodes.
func (c *call) wildcards(name string, list []*Series) (any, error) {
	leaveOut := map[int]bool{}
	for _, v := range c.rest {
		if n, ok := wholeNumber(v); ok {
			leaveOut[int(n)] = true
		}
	}
	groups, err := newGroups(list, func(s *Series) (string, error) {
		var kept []string
		for i, node := range strings.Split(s.Name, ".") {
			if !leaveOut[i] {
				kept = append(kept, node)
			}
		}
		return c.joined(kept, ".")
	})
	if err != nil {
		return nil, err
	}
	out := make([]*Series, 0, len(groups))
	for _, g := range groups {
		s, err := c.combine(name, c.xFilesFactor, g.list)
		if err != nil {
			return nil, err
		}
		s.Name = g.key
		out = append(out, s)
	}
	return out, nil
}

func powSeries(c *call) (any, error) {
	list := slices.Concat(c.lists()...)
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return one(c.folded("powSeries("+strings.Join(names, ",")+")", func(row []float64) float64 {
		v := row[0]
		for _, exponent := range row[1:] {
			if numeric.IsNull(v) || numeric.IsNull(exponent) {
				return numeric.Null
			}
			v = numeric.FinitePow(v, exponent)
		}
		return v
	}, list...))
}

func countSeries(c *call) (any, error) {
	lists := c.lists()
	if len(lists) == 0 {
		s, err := c.line(0, "0")
		if err == nil {
			s.PathExpression = "countSeries()"
		}
		return one(s, err)
	}
	f, err := c.normalize(lists...)
	if err != nil {
		return nil, err
	}
	values, err := c.array(int64(f.rows))
	numeric.Fill(values, float64(len(f.list)))
	return one(newSeries("countSeries("+expressions(f.list)+")", f.start, f.end, f.step, values, c.xFilesFactor), err)
}

func groupLists(c *call) (any, error) {
	lists := c.lists()
	return slices.Concat(lists...), c.err
}

func percentileOfSeries(c *call) (any, error) {
	list, n := c.list(0), c.float(1, 0)
	interpolated := c.boolean(2)
	switch {
	case c.err != nil:
		return nil, c.err
	case n <= 0:
		return nil, badParam("the requested percent is required to be greater than 0")
	case len(list) == 0:
		return nil, errNothing
	}
	possible := true
	name := fmt.Sprintf("percentileOfSeries(%s,%s)", list[0].PathExpression, pytext.General(n))
	s, err := c.folded(name, func(row []float64) float64 {
		v, ok := numeric.Percentile(row, n, interpolated)
		possible = possible && ok
		return v
	}, list...)
	if err == nil && !possible {
		err = badParam("there is no percentile %s of %d series", pytext.General(n), len(list))
	}
	return one(s, err)
}

func divideSeries(c *call) (any, error) {
	dividends, divisors := c.list(0), c.list(1)
	switch len(divisors) {
	case 0:
		return c.each(dividends, func(s *Series) error {
			s.rename("divideSeries(" + s.Name + ",MISSING)")
			numeric.Fill(s.Values, numeric.Null)
			return nil
		})
	case 1:
	default:
		return nil, badParam("the second argument must be exactly 1 series, not %d", len(divisors))
	}
	return paired(dividends, slices.Repeat(divisors, len(dividends)), c.divide)
}

func (c *call) divide(a, b *Series) (*Series, error) {
	return c.folded("divideSeries("+a.Name+","+b.Name+")", func(row []float64) float64 { return numeric.Quotient(row[0], row[1]) }, a, b)
}

func divideSeriesLists(c *call) (any, error) {
	dividends, divisors := c.list(0), c.list(1)
	return paired(dividends, divisors, c.divide)
}

func weightedAverage(c *call) (any, error) {
	averages, weights := c.list(0), c.list(1)
	if c.err != nil {
		return nil, c.err
	}
	if len(averages) != len(weights) {
		return nil, badParam("there must be as many series of values as of weights: there are %d and %d", len(averages), len(weights))
	}
	type pair struct{ average, weight *Series }
	pairs := map[string]*pair{}
	var keys []string
	at := func(s *Series) (*pair, error) {
		k, err := c.key(s, c.rest)
		if err != nil {
			return nil, err
		}
		if pairs[k] == nil {
			pairs[k] = &pair{}
			keys = append(keys, k)
		}
		return pairs[k], nil
	}
	for i := range averages {
		p, err := at(averages[i])
		if err != nil {
			return nil, err
		}
		p.average = averages[i]
		if p, err = at(weights[i]); err != nil {
			return nil, err
		}
		p.weight = weights[i]
	}
	var products []*Series
	for _, k := range keys {
		p := pairs[k]
		if p.average == nil || p.weight == nil {
			continue
		}
		values, err := c.eachPair(p.average.Values, p.weight.Values, func(a, b float64) float64 { return a * b })
		if err != nil {
			return nil, err
		}
		product, err := c.made("product("+p.weight.Name+","+p.average.Name+")", p.average.Start, p.average.End, p.average.Step, values)
		if err != nil {
			return nil, err
		}
		products = append(products, product)
	}
	if len(products) == 0 {
		return nil, errNothing
	}
	sums, err := c.combine("sum", c.xFilesFactor, products)
	if err != nil {
		return nil, err
	}
	total, err := c.combine("sum", c.xFilesFactor, weights)
	if err != nil {
		return nil, err
	}
	values, err := c.eachPair(sums.Values, total.Values, numeric.Quotient)
	if err != nil {
		return nil, err
	}
	nodes := make([]string, len(c.rest))
	for i, n := range c.rest {
		nodes[i] = pytext.Text(n)
	}
	name := fmt.Sprintf("weightedAverage(%s, %s, %s)", sortedExpressions(averages), sortedExpressions(weights), strings.Join(nodes, ","))
	return []*Series{newSeries(name, sums.Start, sums.End, sums.Step, values, c.xFilesFactor)}, nil
}

func sortedExpressions(list []*Series) string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = s.PathExpression
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}
