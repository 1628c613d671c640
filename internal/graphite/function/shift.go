package function

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"varve/internal/graphite/numeric"
)

func init() {
	const group = "Transform"
	define(group, "timeShift(seriesList, timeShift:interval, [resetEnd:boolean=true], [alignDst:boolean=false])", "Shows series of another time in this range; without a sign the interval goes back.", timeShift)
	define(group, "timeStack(seriesList, [timeShiftUnit:interval=\"1d\"], [timeShiftStart:integer=0], [timeShiftEnd:integer=7])", "Shows series of several times in this range, each shifted by one unit more.", timeStack)
	define(group, "timeSlice(seriesList, startSliceAt:date, [endSliceAt:date=\"now\"])", "Makes values outside of a span of time null.", timeSlice)
	define(group, "time(name:string, [step:integer=60])", "Makes a series whose values are their times.", timeFunction, "timeFunction")
	define(group, "sin(name:string, [amplitude:integer=1], [step:integer=60])", "Makes a series of sines of its times.", sinFunction, "sinFunction")
	define("Special", "randomWalk(name:string, [step:integer=60])", "Makes a series that changes at random.", randomWalk, "randomWalkFunction")
}

// timeOf returns an instant in the zone of another one.
func timeOf(unix int64, like time.Time) time.Time { return time.Unix(unix, 0).In(like.Location()) }

// backwards puts a minus before an interval without a sign.
func (c *call) backwards(i int, without string) (text string, seconds int64) {
	text, seconds = c.interval(i, without)
	if text == "" {
		c.fail(i, "an interval such as 1h")
	} else if text[0] >= '0' && text[0] <= '9' {
		text, seconds = "-"+text, -seconds
	}
	return text, seconds
}

func timeShift(c *call) (any, error) {
	list := c.list(0)
	shown, seconds := c.backwards(1, "")
	if c.err != nil {
		return nil, c.err
	}
	from, until := timeOf(c.from.Unix()+seconds, c.from), timeOf(c.until.Unix()+seconds, c.until)
	if c.boolean(3) {
		correction := c.daylight(from, until)
		from, until = from.Add(correction), until.Add(correction)
	}
	if len(list) == 0 {
		return nil, errNothing
	}
	shifted, err := c.argument(c.within(from, until))
	if err != nil {
		return nil, err
	}
	resetEnd := c.boolean(2) || !c.given(2)
	return c.each(shifted, func(s *Series) error {
		s.Tags["timeShift"] = shown
		s.Name = fmt.Sprintf(`timeShift(%s, "%s")`, s.Name, shown)
		s.End += list[0].Start - s.Start
		if resetEnd {
			s.End = list[0].End
		}
		s.Start = list[0].Start
		return nil
	})
}

// daylight returns what a shifted range must move by so that clocks of the
// server show the same hours, if daylight saving time holds in all of one
// range and in none of the other.
func (c *call) daylight(from, until time.Time) time.Duration {
	saving := func(t time.Time) bool { return timeOf(c.wall(t), t).In(c.serverZone()).IsDST() }
	here, hereEnd, there, thereEnd := saving(c.from), saving(c.until), saving(from), saving(until)
	switch {
	case here && hereEnd && !there && !thereEnd:
		return time.Hour
	case !here && !hereEnd && there && thereEnd:
		return -time.Hour
	}
	return 0
}

func timeStack(c *call) (any, error) {
	list := c.list(0)
	shown, seconds := c.backwards(1, "1d")
	first, end := c.truncated(2, 0), c.truncated(3, 7)
	if c.err != nil {
		return nil, c.err
	}
	var out []*Series
	for n := first; n < end && len(list) > 0; n++ {
		if n > math.MaxInt32 || n < math.MinInt32 {
			return nil, badParam("more than %d units", math.MaxInt32)
		}
		from, until := timeOf(c.from.Unix()+n*seconds, c.from), timeOf(c.until.Unix()+n*seconds, c.until)
		shifted, err := c.argument(c.within(from, until))
		if err != nil {
			return nil, err
		}
		for _, s := range shifted {
			s.Tags["timeShiftUnit"] = shown
			s.Tags.set("timeShift", n)
			s.rename(fmt.Sprintf("timeShift(%s, %s, %d)", s.Name, shown, n))
			s.Start, s.End = list[0].Start, list[0].End
			out = append(out, s)
		}
	}
	return out, nil
}

// timeSlice counts the time of values from the beginning of the range on, also
// if the series begins elsewhere, as in Graphite.
func timeSlice(c *call) (any, error) {
	list, start, end := c.list(0), c.date(1), c.request.Now
	if c.given(2) {
		end = c.date(2)
	}
	from, until := start.Unix(), end.Unix()
	return c.each(list, func(s *Series) error {
		s.Tags.set("timeSliceStart", from)
		s.Tags.set("timeSliceEnd", until)
		s.Name = fmt.Sprintf("timeSlice(%s, %d, %d)", s.Name, from, until)
		begin := c.wall(c.from)
		for i := range s.Values {
			if at := begin + int64(i)*s.Step; at < from || at > until {
				s.Values[i] = numeric.Null
			}
		}
		return nil
	})
}

// generated makes a series with a value at each step of the range.
func (c *call) generated(name string, step int64, value func(at int64) float64) (*Series, error) {
	from, until := c.bounds()
	if c.err != nil {
		return nil, c.err
	}
	if step <= 0 {
		return nil, badParam("the step must be positive")
	}
	values, err := c.array((until - from + step - 1) / step)
	if err != nil {
		return nil, err
	}
	for i := range values {
		values[i] = value(from + int64(i)*step)
		if i&0xffff != 0xffff {
			continue
		}
		if err := c.look(); err != nil {
			return nil, err
		}
	}
	return newSeries(name, from, until, step, values, c.xFilesFactor), nil
}

func timeFunction(c *call) (any, error) {
	name, step := c.str(0, ""), c.integer(1, 60)
	shift := c.wall(c.from) - c.from.Unix()
	s, err := c.generated(name, step, func(at int64) float64 { return float64(at + shift) })
	if err == nil {
		s.Start, s.End = c.wall(c.from), c.wall(c.until)
	}
	return one(s, err)
}

func sinFunction(c *call) (any, error) {
	name, amplitude, step := c.str(0, ""), c.float(1, 1), c.integer(2, 60)
	shift := c.wall(c.from) - c.from.Unix()
	return one(c.generated(name, step, func(at int64) float64 { return math.Sin(float64(at+shift)) * amplitude }))
}

func randomWalk(c *call) (any, error) {
	name, step := c.str(0, ""), c.integer(1, 60)
	current := 0.0
	return one(c.generated(name, step, func(int64) float64 {
		v := current
		current += rand.Float64() - 0.5
		return v
	}))
}
