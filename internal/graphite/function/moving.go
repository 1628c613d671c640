package function

import (
	"cmp"
	"fmt"
	"strings"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/pytext"
	"varve/internal/graphite/timespec"
)

func init() {
	const group = "Calculate"
	define(group, "movingWindow(seriesList, windowSize:intOrInterval, [func:aggFunc=\"average\"], [xFilesFactor:float])", "Aggregates each value with those before it, as many points or as long an interval as the window has.", movingWindow)
	for _, m := range [...]struct{ name, function, what string }{
		{"movingAverage", "average", "Averages"}, {"movingMax", "max", "Takes the greatest of"}, {"movingMedian", "median", "Takes the median of"},
		{"movingMin", "min", "Takes the least of"}, {"movingSum", "sum", "Adds up"},
	} {
		define(group, m.name+"(seriesList, windowSize:intOrInterval, [xFilesFactor:float])", m.what+" each value and those before it in a window.", func(c *call) (any, error) {
			return c.moving(m.function, 2)
		})
	}
	define(group, "exponentialMovingAverage(seriesList, windowSize:intOrInterval)", "Averages values with weights that decrease exponentially with their age.", exponentialMovingAverage)
}

func movingWindow(c *call) (any, error) {
	name, _ := c.aggregation(2, "average")
	if c.err != nil {
		return nil, c.err
	}
	return c.moving(name, 3)
}

// A window is a number of points, or an interval.
type window struct {
	shown    any // as it was given
	interval bool
	points   int64
	seconds  int64 // before the range that have to be fetched
}

// maxWindow bounds the window, in points and in seconds.
const maxWindow = 1 << 36

// window reads the argument at place 1.
func (c *call) window(list []*Series) (window, error) {
	w := window{shown: c.args[1]}
	switch x := c.args[1].(type) {
	case string:
		seconds, err := timespec.ParseOffset(x)
		if err != nil {
			return w, badParam("%v", err)
		}
		w.interval, w.seconds = true, max(seconds, -seconds)
	case bool:
		w.points = ofBool(x)
		w.seconds = w.points * widest(list)
	case int64, float64:
		w.points = c.truncated(1, 0)
		if w.points > maxWindow || w.points < -maxWindow {
			return w, badParam("a window of more than %d points", int64(maxWindow))
		}
		w.seconds = w.points * widest(list)
	default:
		c.fail(1, "a number of points or an interval")
	}
	if w.seconds > maxWindow || w.seconds < -maxWindow {
		return w, badParam("a window of more than %d seconds", int64(maxWindow))
	}
	return w, c.err
}

func widest(list []*Series) int64 {
	step := int64(0)
	for _, s := range list {
		step = max(step, s.Step)
	}
	return step
}

// of returns how many points of a series the window has.
func (w window) of(s *Series) int64 {
	if w.interval {
		return w.seconds / s.Step
	}
	return w.points
}

func (w window) String() string {
	if w.interval {
		return `"` + pytext.Text(w.shown) + `"`
	}
	return pytext.Text(w.shown)
}

// before returns the series of the first argument from a window earlier on.
func (c *call) before(seconds int64) ([]*Series, error) {
	from := timeOf(c.from.Unix()-seconds, c.from)
	return c.argument(c.within(from, c.until))
}

// moving aggregates windows that end with each point of the range.
func (c *call) moving(function string, xFilesFactorAt int) (any, error) {
	list := c.list(0)
	_, err := aggregationOf(function)
	if c.err != nil || err != nil {
		return nil, cmp.Or(c.err, err)
	}
	if len(list) == 0 {
		return nil, errNothing
	}
	w, err := c.window(list)
	if err != nil {
		return nil, err
	}
	earlier, err := c.before(w.seconds)
	if err != nil {
		return nil, err
	}
	tag := "moving" + strings.ToUpper(function[:1]) + strings.ToLower(function[1:])
	return c.mapped(earlier, func(s *Series) (*Series, error) {
		values, err := c.windows(s.Values, int(w.of(s)), function, c.factor(xFilesFactorAt, s.XFilesFactor))
		return w.moved(s, tag, values), cmp.Or(err, c.err)
	})
}

// moved returns the series of the values of a window that moved over s.
func (w window) moved(s *Series, tag string, values []float64) *Series {
	s.Tags.set(tag, w.shown)
	moved := s.derive(fmt.Sprintf("%s(%s,%s)", tag, s.Name, w), values)
	moved.Start += w.seconds
	return moved
}

// windows is [numeric.Windows] with memory of the request.
func (c *call) windows(values []float64, points int, function string, xFilesFactor float64) ([]float64, error) {
	out, err := c.array(int64(len(values) - points)) // a negative window makes nulls, as in Graphite
	if err != nil {
		return nil, err
	}
	if err := c.reserve(numeric.WindowBytes(function, len(values), points)); err != nil {
		return nil, err
	}
	return out, numeric.Windows(out, values, points, function, xFilesFactor, c.look)
}

func exponentialMovingAverage(c *call) (any, error) {
	list := c.list(0)
	if c.err != nil {
		return nil, c.err
	}
	if len(list) == 0 {
		return nil, errNothing
	}
	w, err := c.window(list)
	if err != nil {
		return nil, err
	}
	size := w.points
	if w.interval {
		size = w.seconds
	}
	if size < 0 {
		return nil, badParam("a window of less than no points")
	}
	weight := 2 / (float64(size) + 1)
	earlier, err := c.before(w.seconds)
	if err != nil {
		return nil, err
	}
	return c.mapped(earlier, func(s *Series) (*Series, error) {
		first := min(w.of(s), int64(len(s.Values)))
		values, err := c.array(int64(len(s.Values)) - first + 1)
		if err == nil {
			err = numeric.Exponential(values, s.Values, int(first), weight, c.look)
		}
		return w.moved(s, "exponentialMovingAverage", values), err
	})
}
