package function

import (
	"fmt"
	"math"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
	"varve/internal/graphite/timespec"
)

func init() {
	const group = "Transform"
	define(group, "absolute(seriesList)", "Replaces each value by its absolute value.", simple("absolute", "1", math.Abs))
	define(group, "add(seriesList, constant:float)", "Adds a constant to each value.", constantly(pytext.Whole, plus))
	define(group, "delay(seriesList, steps:integer)", "Shifts values by a number of steps; the ends are filled with nulls and cut off.", delay)
	define(group, "derivative(seriesList)", "Replaces each value by its difference from the value before it.", recomputed("derivative", numeric.Differences))
	define(group, "exp(seriesList)", "Raises e to the power of each value.", simple("exp", "e", math.Exp))
	define(group, "integral(seriesList)", "Replaces each value by the sum of the values up to it.", recomputed("integral", numeric.Sums))
	define(group, "integralByInterval(seriesList, intervalUnit:string)", "Sums values up like integral, starting again from 0 every interval since the beginning of the range.", integralByInterval)
	define(group, "interpolate(seriesList, [limit:intOrInf=Infinity])", "Fills gaps of at most limit nulls with values on a line between their ends.", gapless("interpolate", numeric.Interpolate))
	define(group, "invert(seriesList)", "Replaces each value v by 1/v.", simple("invert", "1", func(v float64) float64 { return numeric.FinitePow(v, -1) }))
	define(group, "isNonNull(seriesList)", "Replaces values by 1 and nulls by 0.", isNonNull)
	define(group, "keepLastValue(seriesList, [limit:intOrInf=Infinity])", "Fills gaps of at most limit nulls with the value before them.", gapless("keepLastValue", numeric.FillGaps))
	define(group, "log(seriesList, [base:integer=10])", "Takes the logarithm of each value; of values that are not positive it is null.", logarithm)
	define(group, "logit(seriesList)", "Replaces each value v by log(v/(1-v)).", simple("logit", "logit", logit))
	define(group, "minMax(seriesList)", "Scales values so that the least is 0 and the greatest is 1.", minMax)
	define(group, "nonNegativeDerivative(seriesList, [maxValue:float], [minValue:float])", "Like derivative, for counters: a decrease is null, or a wrap-around if maxValue tells where the counter wraps.", nonNegativeDerivative)
	define(group, "offset(seriesList, factor:float)", "Adds a constant to each value.", constantly(pytext.General, plus))
	define(group, "offsetToZero(seriesList)", "Subtracts the least value of a series from each of its values.", offsetToZero)
	define(group, "perSecond(seriesList, [maxValue:float], [minValue:float])", "Like nonNegativeDerivative, divided by the step in seconds.", perSecond)
	define(group, "pow(seriesList, factor:float)", "Raises each value to a power.", constantly(pytext.General, numeric.FinitePow))
	define(group, "round(seriesList, [precision:integer=0])", "Rounds each value to a number of decimals.", roundValues)
	define(group, "scale(seriesList, factor:float)", "Multiplies each value by a constant.", constantly(pytext.General, func(v, factor float64) float64 { return v * factor }))
	define(group, "scaleToSeconds(seriesList, seconds:float)", "Scales values of one step to what they would be of so many seconds.", scaleToSeconds)
	define(group, "sigmoid(seriesList)", "Replaces each value v by 1/(1+exp(-v)).", simple("sigmoid", "sigmoid", func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }))
	define(group, "squareRoot(seriesList)", "Takes the square root of each value.", simple("squareRoot", "1", func(v float64) float64 { return numeric.FinitePow(v, 0.5) }))
	define(group, "transformNull(seriesList, [default:float=0], [referenceSeries])", "Replaces nulls by a number; with a reference only where that has a value.", transformNull)
	define(group, "compressPeriodicGaps(seriesList)", "Finds out that values come at a wider interval than the step, and makes it the step.", compressPeriodicGaps)
}

// simple is a function that changes values one by one, and is told by a tag.
func simple(tag, value string, f func(float64) float64) func(*call) (any, error) {
	return func(c *call) (any, error) {
		return c.each(c.list(0), func(s *Series) error {
			s.Tags[tag] = value
			s.rename(tag + "(" + s.Name + ")")
			return c.change(s.Values, f)
		})
	}
}

// constantly is a function that changes values one by one by a number.
func constantly(show func(float64) string, f func(v, constant float64) float64) func(*call) (any, error) {
	return func(c *call) (any, error) {
		list, constant := c.list(0), c.float(1, 0)
		return c.each(list, func(s *Series) error {
			s.Tags.set(c.function.Name, c.args[1])
			s.rename(fmt.Sprintf("%s(%s,%s)", c.function.Name, s.Name, show(constant)))
			return c.change(s.Values, func(v float64) float64 { return f(v, constant) })
		})
	}
}

func plus(v, constant float64) float64 { return v + constant }

// recomputed is a function that replaces the values of series, and marks the series with a tag.
func recomputed(tag string, f func(out, values []float64)) func(*call) (any, error) {
	return func(c *call) (any, error) { return c.recompute(c.list(0), tag, f) }
}

func (c *call) recompute(list []*Series, tag string, f func(out, values []float64)) (any, error) {
	return c.derive(list, func(s *Series, values []float64) string {
		f(values, s.Values)
		s.Tags[tag] = "1"
		return tag + "(" + s.Name + ")"
	})
}

// gapless is a function that fills gaps of at most limit nulls.
func gapless(name string, fill func(values []float64, limit float64)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		list, limit := c.list(0), c.float(1, numeric.Infinity)
		return c.each(list, func(s *Series) error {
			s.rename(name + "(" + s.Name + ")")
			fill(s.Values, limit)
			return nil
		})
	}
}

func logit(v float64) float64 {
	ratio := v / (1 - v)
	if ratio <= 0 || v == 1 {
		return numeric.Null
	}
	return numeric.Log(ratio)
}

func logarithm(c *call) (any, error) {
	list, base := c.list(0), c.float(1, 10)
	possible := base > 0 && base != 1
	var shown any = int64(10)
	if c.given(1) {
		shown = c.args[1]
	}
	positive := false
	out, err := c.derive(list, func(s *Series, values []float64) string {
		for i, v := range s.Values {
			values[i] = numeric.Null
			if v > 0 {
				positive = true
				values[i] = numeric.Log(v) / numeric.Log(base)
			}
		}
		s.Tags.set("log", shown)
		return fmt.Sprintf("log(%s, %s)", s.Name, pytext.Text(shown))
	})
	if positive && !possible {
		return nil, badParam("the base must be positive and not 1")
	}
	return out, err
}

func scaleToSeconds(c *call) (any, error) {
	list, seconds := c.list(0), c.float(1, 0)
	return c.each(list, func(s *Series) error {
		s.Tags.set("scaleToSeconds", c.args[1])
		s.rename(fmt.Sprintf("scaleToSeconds(%s,%s)", s.Name, pytext.Whole(seconds)))
		factor := seconds / float64(s.Step)
		return c.change(s.Values, func(v float64) float64 { return numeric.Round(v*factor, 6) })
	})
}

func offsetToZero(c *call) (any, error) {
	return c.each(c.list(0), func(s *Series) error {
		least := numeric.Min(s.Values)
		s.Tags.set("offsetToZero", least)
		s.rename("offsetToZero(" + s.Name + ")")
		return c.change(s.Values, func(v float64) float64 { return v - least })
	})
}

func roundValues(c *call) (any, error) {
	list, decimals := c.list(0), int64(0)
	if c.given(1) {
		decimals = c.integer(1, 0)
	}
	return c.each(list, func(s *Series) error {
		s.Tags.set("round", decimals)
		if c.given(1) {
			s.rename(fmt.Sprintf("round(%s,%s)", s.Name, pytext.General(float64(decimals))))
		} else {
			s.rename("round(" + s.Name + ")")
		}
		return c.change(s.Values, func(v float64) float64 { return numeric.Round(v, decimals) })
	})
}

func minMax(c *call) (any, error) {
	return c.each(c.list(0), func(s *Series) error {
		least, most := numeric.Min(s.Values), numeric.Max(s.Values)
		s.rename("minMax(" + s.Name + ")")
		return c.change(s.Values, func(v float64) float64 {
			if most == least {
				return 0
			}
			return (v - least) / (most - least)
		})
	})
}

func delay(c *call) (any, error) {
	list, steps := c.list(0), c.integer(1, 0)
	return c.derive(list, func(s *Series, values []float64) string {
		numeric.Shift(values, s.Values, steps)
		s.Tags.set("delay", steps)
		return fmt.Sprintf("delay(%s,%d)", s.Name, steps)
	})
}

func (c *call) counter() numeric.Counter {
	k := numeric.Counter{HasMax: c.given(1), HasMin: c.given(2)}
	if k.HasMax {
		k.Max = c.float(1, 0)
	}
	if k.HasMin {
		k.Min = c.float(2, 0)
	}
	return k
}

func nonNegativeDerivative(c *call) (any, error) {
	list, k := c.list(0), c.counter()
	return c.recompute(list, "nonNegativeDerivative", k.Increases)
}

func perSecond(c *call) (any, error) {
	list, k := c.list(0), c.counter()
	out, err := c.recompute(list, "perSecond", k.Increases)
	if err != nil {
		return nil, err
	}
	return c.each(out.([]*Series), func(s *Series) error {
		return c.change(s.Values, func(v float64) float64 { return numeric.Round(v/float64(s.Step), 6) })
	})
}

func integralByInterval(c *call) (any, error) {
	list := c.list(0)
	unit := c.str(1, "")
	seconds, err := timespec.ParseOffset(unit)
	seconds = max(seconds, -seconds)
	if c.err == nil && (err != nil || seconds == 0) {
		return nil, badParam("%.64q is not an interval such as 1d", unit)
	}
	start := c.wall(c.from)
	return c.derive(list, func(s *Series, values []float64) string {
		sum := 0.0
		for i, v := range s.Values {
			at := s.Start + int64(i)*s.Step - start
			if numeric.FloorDiv(at, seconds) != numeric.FloorDiv(at-s.Step, seconds) {
				sum = 0
			}
			if !numeric.IsNull(v) {
				sum += v
			}
			values[i] = sum
		}
		s.Tags["integralByInterval"] = unit
		return fmt.Sprintf("integralByInterval(%s,'%s')", s.Name, unit)
	})
}

func isNonNull(c *call) (any, error) {
	return c.each(c.list(0), func(s *Series) error {
		s.Tags["isNonNull"] = "1"
		s.rename("isNonNull(" + s.Name + ")")
		for i, v := range s.Values {
			s.Values[i] = 1
			if numeric.IsNull(v) {
				s.Values[i] = 0
			}
		}
		return nil
	})
}

func transformNull(c *call) (any, error) {
	list, value := c.list(0), c.float(1, 0)
	var reference []*Series
	if c.given(2) {
		reference = c.list(2)
	}
	var shown any = int64(0)
	if c.given(1) {
		shown = c.args[1]
	}
	filled, err := c.filled(reference)
	if err != nil {
		return nil, err
	}
	return c.each(list, func(s *Series) error {
		s.Tags.set("transformNull", shown)
		name := fmt.Sprintf("transformNull(%s,%s)", s.Name, pytext.General(value))
		if len(reference) > 0 {
			s.Tags["referenceSeries"] = "1"
			name = fmt.Sprintf("transformNull(%s,%s,referenceSeries)", s.Name, pytext.General(value))
		}
		s.rename(name)
		for i, v := range s.Values {
			if numeric.IsNull(v) && (len(reference) == 0 || i < len(filled) && filled[i]) {
				s.Values[i] = value
			}
		}
		numeric.Slide(s.Values, filled, value)
		return nil
	})
}

// filled tells where one of the series at least has a value.
func (c *call) filled(list []*Series) ([]bool, error) {
	var out []bool
	for _, s := range list {
		if err := c.reserve(int64(max(len(s.Values)-len(out), 0))); err != nil {
			return nil, err
		}
		if n := len(s.Values) - len(out); n > 0 {
			out = append(out, make([]bool, n)...)
		}
		for i, v := range s.Values {
			out[i] = out[i] || !numeric.IsNull(v)
		}
	}
	return out, nil
}

func compressPeriodicGaps(c *call) (any, error) {
	list := c.list(0)
	out := make([]*Series, 0, len(list))
	for _, s := range list {
		s.rename("compressPeriodicGaps(" + s.Name + ")")
		compressed, err := c.compress(s)
		if err != nil {
			return nil, err
		}
		out = append(out, compressed)
	}
	return out, nil
}

// compress makes the period of the values the step of the series, if they have
// one.
func (c *call) compress(s *Series) (*Series, error) {
	first, distance, ok := numeric.Period(s.Values)
	if !ok {
		return s, nil
	}
	interval := int64(distance) * s.Step
	start := s.Start + int64(first)*s.Step
	values, _, err := c.buckets(s, numeric.Last, interval, start, s.End)
	if err != nil {
		return nil, err
	}
	out := s.derive(s.Name, values)
	out.Start, out.End, out.Step = start, start+interval*int64(len(values)-1), interval
	out.PathExpression = s.PathExpression
	return out, nil
}
