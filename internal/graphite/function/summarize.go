package function

import (
	"fmt"
	"strings"
	"time"

	"varve/internal/graphite/numeric"
	"varve/internal/graphite/timespec"
)

func init() {
	const group = "Transform"
	define(group, "summarize(seriesList, intervalString:interval, [func:aggFunc=\"sum\"], [alignToFrom:boolean=false])", "Aggregates values in buckets of an interval, which begin at its multiples or at the beginning of the series.", summarize)
	define(group, "smartSummarize(seriesList, intervalString:interval, [func:aggFunc=\"sum\"], [alignTo:string])", "Aggregates values in buckets of an interval that begin at the beginning of the range, or of its minute, hour, day and so on.", smartSummarize)
	define(group, "hitcount(seriesList, intervalString:interval, [alignToInterval:boolean=false])", "Takes values for rates per second and sums the hits in each interval.", hitcount)
}

// buckets aggregates the values of a series in intervals from start to end,
// and returns where the last one ends.
func (c *call) buckets(s *Series, aggregate numeric.Aggregation, interval, start, end int64) ([]float64, int64, error) {
	n := int64(0)
	if end > start {
		n = (end - start + interval - 1) / interval
	}
	out, err := c.array(n)
	if err != nil {
		return nil, 0, err
	}
	points := max(0, min(int64(len(s.Values)), (s.End-s.Start+s.Step-1)/s.Step))
	b := numeric.Buckets{Start: start, Interval: interval, XFilesFactor: s.XFilesFactor}
	return out, start + n*interval, b.Aggregate(out, s.Values[:points], s.Start, s.Step, aggregate, c.look)
}

func summarize(c *call) (any, error) {
	list := c.list(0)
	shown, interval := c.duration(1, "")
	name, aggregate := c.aggregation(2, "sum")
	fromStart := c.boolean(3)
	return c.mapped(list, func(s *Series) (*Series, error) {
		start, end := s.Start-numeric.FloorMod(s.Start, interval), s.End-numeric.FloorMod(s.End, interval)+interval
		suffix := ""
		if fromStart {
			start, end, suffix = s.Start, s.End, ", true"
		}
		values, last, err := c.buckets(s, aggregate, interval, start, end)
		if fromStart {
			end = last
		}
		s.Tags["summarize"], s.Tags["summarizeFunction"] = shown, name
		bucketed := s.derive(fmt.Sprintf(`summarize(%s, "%s", "%s"%s)`, s.Name, shown, name, suffix), values)
		bucketed.Start, bucketed.End, bucketed.Step = start, end, interval
		return bucketed, err
	})
}

func smartSummarize(c *call) (any, error) {
	list := c.list(0)
	shown, interval := c.duration(1, "")
	name, aggregate := c.aggregation(2, "sum")
	if c.err != nil {
		return nil, c.err
	}
	if _, flag := c.args[3].(bool); c.given(3) && !flag {
		unit := c.str(3, "")
		if c.err != nil {
			return nil, c.err
		}
		from, err := alignTo(c.from, unit)
		if err != nil {
			return nil, err
		}
		if list, err = c.argument(c.within(from, c.until)); err != nil {
			return nil, err
		}
	}
	return c.mapped(list, func(s *Series) (*Series, error) {
		values, end, err := c.buckets(s, aggregate, interval, s.Start, s.End)
		s.Tags["smartSummarize"], s.Tags["smartSummarizeFunction"] = shown, name
		bucketed := s.derive(fmt.Sprintf(`smartSummarize(%s, "%s", "%s")`, s.Name, shown, name), values)
		bucketed.End, bucketed.Step = end, interval
		return bucketed, err
	})
}

// alignTo returns the beginning of the second, minute, hour, day, week, month
// or year that holds t. weeks3 are weeks that begin on Wednesday.
func alignTo(t time.Time, unit string) (time.Time, error) {
	span, ok := timespec.Unit(unit)
	if !ok {
		return t, badParam("unknown unit %.64q to align to: use seconds, minutes, hours, days, weeks, months or years", unit)
	}
	if span != timespec.Week {
		return truncate(t, span), nil
	}
	first := 1
	if last := unit[len(unit)-1]; last >= '0' && last <= '9' {
		first = int(last - '0')
	} else if strings.TrimFunc(unit, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }) != "" {
		return t, badParam("unknown unit %.64q to align to: weeks may be followed by the number of a day", unit)
	}
	weekday := (int(t.Weekday())+6)%7 + 1 // Monday is 1
	days := weekday - first
	if days < 0 {
		days += 7
	}
	return truncate(t, timespec.Day).Add(-time.Duration(days) * 24 * time.Hour), nil
}

// truncate cuts a local time. The offset from UTC stays that of t, even if
// clocks changed in between, as in Graphite.
func truncate(t time.Time, span timespec.Span) time.Time {
	month, day, hour, minute := t.Month(), t.Day(), t.Hour(), t.Minute()
	second := t.Second()
	switch span {
	case timespec.Year:
		month, day, hour, minute, second = 1, 1, 0, 0, 0
	case timespec.Month:
		day, hour, minute, second = 1, 0, 0, 0
	case timespec.Day:
		hour, minute, second = 0, 0, 0
	case timespec.Hour:
		minute, second = 0, 0
	case timespec.Minute:
		second = 0
	}
	_, offset := t.Zone()
	return time.Unix(time.Date(t.Year(), month, day, hour, minute, second, 0, time.UTC).Unix()-int64(offset), 0).In(t.Location())
}

func hitcount(c *call) (any, error) {
	list := c.list(0)
	shown, interval := c.duration(1, "")
	aligned := c.boolean(2)
	if c.err != nil {
		return nil, c.err
	}
	suffix := ""
	if aligned {
		var err error
		suffix = ", true"
		if list, err = c.argument(c.within(hitStart(c.from, interval), c.until)); err != nil {
			return nil, err
		}
		for _, s := range list {
			s.End = s.Start + numeric.FloorDiv(s.End-s.Start, interval)*interval + interval
		}
	}
	return c.mapped(list, func(s *Series) (*Series, error) {
		values, start, err := c.hits(s, interval)
		s.Tags["hitcount"] = shown
		counted := s.derive(fmt.Sprintf(`hitcount(%s, "%s"%s)`, s.Name, shown, suffix), values)
		counted.Start, counted.Step = start, interval
		return counted, err
	})
}

// hitStart aligns the beginning of a range to the unit below an interval.
func hitStart(t time.Time, interval int64) time.Time {
	switch {
	case interval >= timespec.Day.Seconds():
		return truncate(t, timespec.Day)
	case interval >= timespec.Hour.Seconds():
		return truncate(t, timespec.Hour)
	case interval >= timespec.Minute.Seconds():
		return truncate(t, timespec.Minute)
	}
	return t
}

// hits spreads each value over the intervals that its step touches.
func (c *call) hits(s *Series, interval int64) (sums []float64, start int64, err error) {
	n := (s.End - s.Start + interval - 1) / interval
	sums, err = c.array(n)
	if err != nil {
		return nil, 0, err
	}
	start = s.End - n*interval
	numeric.Buckets{Start: start, Interval: interval}.Spread(sums, s.Values, s.Start, s.Step)
	return sums, start, nil
}
