package function

import (
	"fmt"
	"math"
	"math/big"
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
	out := make([]*Series, 0, len(list))
	_, err := c.each(list, func(s *Series) error {
		value := aggregate(s.Values)
		shown := "None"
		if !isNull(value) {
			shown = general(value)
		}
		name := fmt.Sprintf("aggregateLine(%s, %s)", s.Name, shown)
		if !keepStep {
			line, err := c.line(value, FormatFloat(value))
			if err != nil {
				return err
			}
			line.rename(name)
			out = append(out, line)
			return nil
		}
		values, err := c.array(int64(len(s.Values)))
		if err != nil {
			return err
		}
		for i := range values {
			values[i] = value
		}
		out = append(out, s.derive(name, values))
		return nil
	})
	return out, err
}

func nPercentile(c *call) (any, error) {
	list, n := c.list(0), c.float(1, 0)
	if c.err == nil && n == 0 {
		return nil, badParam("the requested percent is required to be greater than 0")
	}
	out := make([]*Series, 0, len(list))
	_, err := c.each(list, func(s *Series) error {
		value, ok := percentileOf(s.Values, n, false)
		if !ok {
			return badParam("there is no percentile %s", general(n))
		}
		if isNull(value) {
			return nil
		}
		s.Tags.set("nPercentile", c.args[1])
		values, err := c.array((s.End - s.Start) / s.Step)
		if err != nil {
			return err
		}
		for i := range values {
			values[i] = value
		}
		out = append(out, s.derive(fmt.Sprintf("nPercentile(%s, %s)", s.Name, general(n)), values))
		return nil
	})
	return out, err
}

func stdev(c *call) (any, error) {
	list, points, tolerance := c.list(0), c.integer(1, 0), c.float(2, 0.1)
	if c.err == nil && points <= 0 {
		return nil, badParam("the number of points must be positive")
	}
	return c.derive(list, func(s *Series, values []float64) string {
		s.Tags.set("stdev", points)
		valid, sum, squares := 0, 0.0, 0.0
		for i, v := range s.Values {
			if dropped := int64(i) - points; dropped >= 0 && !isNull(s.Values[dropped]) {
				valid--
				sum -= s.Values[dropped]
				squares -= s.Values[dropped] * s.Values[dropped]
			}
			if !isNull(v) {
				valid++
				sum += v
				squares += v * v
			}
			values[i] = null
			if valid > 0 && float64(valid)/float64(points) >= tolerance {
				values[i] = math.Sqrt(float64(valid)*squares-sum*sum) / float64(valid)
			}
		}
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
		slope, offset, ok := leastSquares(sources[i])
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

// leastSquares returns the line through the values of a series over time. The
// sums of places are exact: their differences are small beside them.
func leastSquares(s *Series) (slope, offset float64, ok bool) {
	n, places, squares := new(big.Int), new(big.Int), new(big.Int)
	sum, products := 0.0, 0.0
	const block = 1024 // so many squares fit 64 bits
	for first := 0; first < len(s.Values); first += block {
		var blockN, blockPlaces, blockSquares uint64
		for k, v := range s.Values[first:min(first+block, len(s.Values))] {
			if isNull(v) {
				continue
			}
			i := uint64(first + k)
			blockN, blockPlaces, blockSquares = blockN+1, blockPlaces+i, blockSquares+i*i
			sum += v
			products += float64(i) * v
		}
		n.Add(n, new(big.Int).SetUint64(blockN))
		places.Add(places, new(big.Int).SetUint64(blockPlaces))
		squares.Add(squares, new(big.Int).SetUint64(blockSquares))
	}
	spread := new(big.Int).Sub(new(big.Int).Mul(n, squares), new(big.Int).Mul(places, places))
	if spread.Sign() == 0 {
		return 0, 0, false
	}
	float := func(i *big.Int) float64 {
		f, _ := new(big.Float).SetInt(i).Float64()
		return f
	}
	slope = (float(n)*products - float(places)*sum) / float(spread) / float64(s.Step)
	offset = (float(squares)*sum-products*float(places))/float(spread) - slope*float64(s.Start)
	return slope, offset, true
}

func identity(c *call) (any, error) {
	name := c.str(0, "")
	from, until := c.bounds()
	values, err := c.generate(from, until, 60, func(at int64) float64 { return float64(at) })
	if err != nil {
		return nil, err
	}
	s := newSeries(name, from, until, 60, values, c.xFilesFactor)
	s.PathExpression = fmt.Sprintf(`identity("%s")`, name)
	return []*Series{s}, nil
}
