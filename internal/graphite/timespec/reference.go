package timespec

import (
	"fmt"
	"strings"
	"time"
)

var months = [...]string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}

var weekdays = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// A moment is a date and time of day without a time zone.
type moment struct {
	year         int
	month        time.Month
	day          int
	hour, minute int
}

// parseReference parses a time of day, a day, or both. now must be in zone.
func parseReference(text string, now time.Time, zone *time.Location) (time.Time, error) {
	if text == "" || text == "now" {
		return now, nil
	}
	hour, minute, day, err := timeOfDay(text)
	if err != nil {
		return time.Time{}, err
	}
	if hour > 23 || minute > 59 {
		return time.Time{}, fmt.Errorf("there is no time of day %d:%02d", hour, minute)
	}
	m := moment{now.Year(), now.Month(), now.Day(), hour, minute}
	if err := m.setDay(day, now); err != nil {
		return time.Time{}, err
	}
	return m.in(zone), nil
}

// timeOfDay parses the time at the beginning of a reference and returns the rest.
// For every hour, pm adds twelve hours and am none, as in Graphite, where 12am is
// noon.
func timeOfDay(text string) (hour, minute int, rest string, err error) {
	rest = text
	if i := strings.IndexByte(rest, ':'); i == 1 || i == 2 {
		end := min(i+3, len(rest))
		if !digits(rest[:i]) || !digits(rest[i+1:end]) {
			return 0, 0, "", fmt.Errorf("a time of day is written as HH:MM")
		}
		hour, minute = number(rest[:i]), number(rest[i+1:end])
		rest = rest[end:]
		switch {
		case strings.HasPrefix(rest, "am"):
			rest = rest[2:]
		case strings.HasPrefix(rest, "pm"):
			hour, rest = (hour+12)%24, rest[2:]
		}
	}
	for _, half := range [...]struct {
		name  string
		hours int
	}{{"am", 0}, {"pm", 12}} {
		i := strings.Index(rest, half.name)
		if i != 1 && i != 2 {
			continue
		}
		if !digits(rest[:i]) {
			return 0, 0, "", fmt.Errorf("an hour is missing before %s", half.name)
		}
		hour = number(rest[:i])
		if half.hours > 0 {
			hour = (hour + half.hours) % 24
		}
		rest = rest[i+2:]
	}
	for _, named := range [...]struct {
		name string
		hour int
	}{{"noon", 12}, {"midnight", 0}, {"teatime", 16}} {
		if after, ok := strings.CutPrefix(rest, named.name); ok {
			return named.hour, 0, after, nil
		}
	}
	return hour, minute, rest, nil
}

// setDay sets the day that text names. The empty text is today.
func (m *moment) setDay(text string, now time.Time) error {
	switch {
	case text == "" || text == "today":
		return nil
	case text == "yesterday":
		m.addDays(-1)
		return nil
	case text == "tomorrow":
		m.addDays(1)
		return nil
	case strings.Count(text, "/") == 2:
		return m.setSlashed(text)
	case len(text) == 8 && digits(text):
		return m.setDate(number(text[:4]), number(text[4:6]), number(text[6:]))
	}
	if len(text) < 3 {
		return fmt.Errorf("unknown day %q", text)
	}
	for i, name := range months {
		if text[:3] == name {
			return m.setMonthDay(i+1, text)
		}
	}
	for i, name := range weekdays {
		if text[:3] == name {
			m.addDays(-((int(now.Weekday()) - i + 7) % 7))
			return nil
		}
	}
	return fmt.Errorf("unknown day %q", clip(text))
}

// setSlashed parses MM/DD/YY and MM/DD/YYYY.
func (m *moment) setSlashed(text string) error {
	fields := strings.Split(text, "/")
	for _, f := range fields {
		if !digits(f) || len(f) > 9 {
			return fmt.Errorf("a date is written as MM/DD/YYYY")
		}
	}
	year := number(fields[2])
	if year < 1900 {
		year += 1900
	}
	if year < 1970 {
		year += 100
	}
	return m.setDate(year, number(fields[0]), number(fields[1]))
}

// setMonthDay parses the day at the end of a text such as january15.
func (m *moment) setMonthDay(month int, text string) error {
	day := text[len(text)-2:]
	if !digits(day) {
		day = text[len(text)-1:]
	}
	if !digits(day) {
		return fmt.Errorf("a day is missing after the month")
	}
	return m.setDate(m.year, month, number(day))
}

func (m *moment) setDate(year, month, day int) error {
	if year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return fmt.Errorf("there is no day %04d-%02d-%02d", year, month, day)
	}
	m.year, m.month, m.day = year, time.Month(month), day
	return nil
}

func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func (m *moment) addDays(n int) {
	t := time.Date(m.year, m.month, m.day+n, 0, 0, 0, 0, time.UTC)
	m.year, m.month, m.day = t.Year(), t.Month(), t.Day()
}

// in returns the instant of a local time.
func (m moment) in(zone *time.Location) time.Time {
	local := time.Date(m.year, m.month, m.day, m.hour, m.minute, 0, 0, time.UTC).Unix()
	return Localize(local, zone)
}

// Localize returns the instant at which clocks in zone show a local time. local is
// that time in seconds as if it were UTC. If there are two such instants, Localize
// returns the one in standard time, or else the later one. If there is none,
// because clocks skip the time, it applies the offset before the change.
// (time.Date guarantees neither.)
func Localize(local int64, zone *time.Location) time.Time {
	before := offsetAt(local-secondsPerDay, zone)
	after := offsetAt(local+secondsPerDay, zone)
	first := time.Unix(local-int64(before), 0).In(zone)
	if before == after {
		return first
	}
	second := time.Unix(local-int64(after), 0).In(zone)
	firstFits, secondFits := offsetOf(first) == before, offsetOf(second) == after
	switch {
	case firstFits && secondFits && second.Before(first):
		first, second = second, first
		fallthrough
	case firstFits && secondFits:
		if second.IsDST() && !first.IsDST() {
			return first
		}
		return second
	case secondFits:
		return second
	}
	return first
}

func offsetAt(unix int64, zone *time.Location) int { return offsetOf(time.Unix(unix, 0).In(zone)) }

func offsetOf(t time.Time) int {
	_, offset := t.Zone()
	return offset
}
