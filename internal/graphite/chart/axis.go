package chart

import (
	"math"
	"strconv"
	"time"
)

// A scale maps values to rows of pixels.
type scale struct {
	low, high   float64
	step        float64 // between marks
	top, bottom float64 // rows of high and low
	used        bool    // by a series
}

// huge limits the values that are drawn, so that differences are finite.
const huge = 1e300

// note widens the range to include a value.
func (s *scale) note(v float64) {
	v = max(-huge, min(huge, v))
	if !s.used {
		s.low, s.high, s.used = v, v, true
	}
	s.low, s.high = min(s.low, v), max(s.high, v)
}

// settle rounds the range to a multiple of a step that gives about the number of marks. It
// does not round low and high, if they are given.
func (s *scale) settle(low, high *float64, marks float64) {
	if low != nil {
		s.low = max(-huge, min(huge, *low))
		s.high = max(s.high, s.low)
	}
	if high != nil {
		s.high = max(-huge, min(huge, *high))
		s.low = min(s.low, s.high)
	}
	if span := s.high - s.low; span <= math.Max(math.Abs(s.low), math.Abs(s.high))*1e-12 {
		room := math.Max(math.Abs(s.high)*0.1, 1e-300)
		if s.high == 0 {
			room = 1
		}
		if low == nil {
			s.low -= room
		}
		if high == nil || low != nil {
			s.high += room
		}
	}
	s.step = niceStep((s.high - s.low) / max(1, marks))
	if low == nil {
		s.low = math.Floor(s.low/s.step) * s.step
	}
	if high == nil {
		s.high = math.Ceil(s.high/s.step-1e-9) * s.step
	}
}

// niceStep returns the smallest number that is at least least and 1, 2 or 5 times a power
// of ten.
func niceStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	if power == 0 || math.IsNaN(power) || math.IsInf(power, 0) {
		return max(least, math.SmallestNonzeroFloat64)
	}
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= least*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

func (s *scale) row(v float64) float64 {
	share := (max(-huge, min(huge, v)) - s.low) / (s.high - s.low)
	if math.IsNaN(share) {
		share = 0.5
	}
	return s.bottom - max(-1e4, min(1e4, share))*(s.bottom-s.top)
}

// maxMarks limits the marks of an axis, in spite of rounding.
const maxMarks = 500

// marks returns the values that get a grid line.
func (s *scale) marks() []float64 {
	var out []float64
	first := math.Ceil(s.low/s.step - 1e-9)
	for i := range maxMarks {
		v := (first + float64(i)) * s.step
		if v > s.high+s.step*1e-6 || math.IsNaN(v) {
			break
		}
		out = append(out, v)
	}
	return out
}

var (
	decimalUnits = []string{"", "K", "M", "G", "T", "P", "E", "Z", "Y"}
	binaryUnits  = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"}
)

// label formats a value of the axis in a system of units: si, binary or none.
func (s *scale) label(v float64, system string) string {
	if math.Abs(v) < s.step*1e-6 {
		return "0"
	}
	base, units := 1000.0, decimalUnits
	switch system {
	case "binary":
		base, units = 1024, binaryUnits
	case "none":
		units = decimalUnits[:1]
	}
	size, unit := math.Max(math.Abs(s.low), math.Abs(s.high)), 0
	step := s.step
	for size >= base*10 && unit+1 < len(units) || size >= base && step >= base/10 && unit+1 < len(units) {
		size, step, v = size/base, step/base, v/base
		unit++
	}
	if size >= 1e7 || step < 1e-7 {
		return strconv.FormatFloat(v, 'g', 4, 64) + units[unit]
	}
	digits := max(0, int(math.Ceil(-math.Log10(step)-1e-9)))
	return strconv.FormatFloat(v, 'f', min(digits, 9), 64) + units[unit]
}

// A mark is a time that gets a grid line and a label.
type mark struct {
	at    int64 // in seconds since 1970
	label string
}

// A tick is a distance between marks: months if that is not 0, otherwise seconds.
type tick struct {
	seconds, months int64
	layout          string
}

var ticks = []tick{
	{1, 0, "15:04:05"}, {2, 0, "15:04:05"}, {5, 0, "15:04:05"}, {10, 0, "15:04:05"}, {15, 0, "15:04:05"}, {30, 0, "15:04:05"},
	{60, 0, "15:04"}, {120, 0, "15:04"}, {300, 0, "15:04"}, {600, 0, "15:04"}, {900, 0, "15:04"}, {1800, 0, "15:04"}, {3600, 0, "15:04"},
	{2 * 3600, 0, "Mon 15:04"}, {3 * 3600, 0, "Mon 15:04"}, {6 * 3600, 0, "Mon 15:04"}, {12 * 3600, 0, "Mon 15:04"},
	{86400, 0, "Jan 2"}, {2 * 86400, 0, "Jan 2"}, {7 * 86400, 0, "Jan 2"}, {14 * 86400, 0, "Jan 2"},
	{30 * 86400, 1, "Jan 2006"}, {91 * 86400, 3, "Jan 2006"}, {182 * 86400, 6, "Jan 2006"},
	{365 * 86400, 12, "2006"}, {2 * 365 * 86400, 24, "2006"}, {5 * 365 * 86400, 60, "2006"}, {10 * 365 * 86400, 120, "2006"},
	{50 * 365 * 86400, 600, "2006"}, {100 * 365 * 86400, 1200, "2006"}, {1000 * 365 * 86400, 12000, "2006"},
}

// timeMarks returns marks at round local times between from and until, which are in seconds
// since 1970. most is the number of labels that fit.
func timeMarks(from, until int64, zone *time.Location, most float64) []mark {
	t := ticks[len(ticks)-1]
	for _, candidate := range ticks {
		room := most
		if len(candidate.layout) > 8 {
			room *= 0.75
		}
		if float64(until-from)/float64(candidate.seconds) <= max(1, room) {
			t = candidate
			break
		}
	}
	if t.seconds > 3600 && t.seconds < 86400 && until-from <= 86400 {
		t.layout = "15:04"
	}
	var out []mark
	for at := t.before(from, zone); at.Unix() <= until && len(out) < maxMarks; at = t.after(at, zone) {
		if at.Unix() >= from {
			out = append(out, mark{at.Unix(), at.Format(t.layout)})
		}
	}
	return out
}

// before returns the last mark that is not after a time.
func (t tick) before(unix int64, zone *time.Location) time.Time {
	at := time.Unix(unix, 0).In(zone)
	if t.months > 0 {
		months := int64(at.Year())*12 + int64(at.Month()) - 1
		months -= months % t.months
		return time.Date(int(months/12), time.Month(months%12+1), 1, 0, 0, 0, 0, zone)
	}
	// Marks are at round times of the zone's clock.
	_, offset := at.Zone()
	local := unix + int64(offset)
	local -= (local%t.seconds + t.seconds) % t.seconds
	return fromClock(local, zone)
}

// fromClock returns the instant at which clocks in a zone show a time, which is given as
// if it were UTC.
func fromClock(local int64, zone *time.Location) time.Time {
	u := time.Unix(local, 0).UTC()
	return time.Date(u.Year(), u.Month(), u.Day(), u.Hour(), u.Minute(), u.Second(), 0, zone)
}

// after returns the mark that follows another one. It is later even when the clock is set
// back in between.
func (t tick) after(at time.Time, zone *time.Location) time.Time {
	if t.months > 0 {
		return at.AddDate(0, int(t.months), 0)
	}
	if t.seconds < 3600 {
		return at.Add(time.Duration(t.seconds) * time.Second)
	}
	_, offset := at.Zone()
	next := fromClock(at.Unix()+int64(offset)+t.seconds, zone)
	if !next.After(at) {
		return at.Add(time.Duration(t.seconds) * time.Second)
	}
	return next
}
