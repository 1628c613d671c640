// Package timespec parses Graphite's language of times: the values of from, until
// and now, and intervals in arguments of functions ("-1h", "noon yesterday",
// "06/15/2008", "10min"). The current time and the zone are parameters; the
// package has no clock.
//
// A text is all digits (epoch seconds, or a date YYYYMMDD), or a reference and an
// offset: "noon yesterday-1h" has the reference "noon yesterday" and the offset
// "-1h". Case, blanks, commas and underscores are ignored.
package timespec

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxText limits a text, in bytes.
const maxText = 256

// maxOffsetDays limits an offset, so that sums of offsets cannot overflow. The limit
// is Python's, which Graphite has.
const maxOffsetDays = 999_999_999

const secondsPerDay = 24 * 60 * 60

// An Error says which text is not a time, and why.
type Error struct {
	Text   string
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("invalid time %q: %s", clip(e.Text), e.Reason) }

func fail(text, format string, args ...any) error {
	return &Error{Text: text, Reason: fmt.Sprintf(format, args...)}
}

// clip shortens a text for a message.
func clip(text string) string {
	if len(text) > 64 {
		return text[:64] + "..."
	}
	return text
}

var blanks = strings.NewReplacer("_", "", ",", "", " ", "")

// Parse parses a point in time. Offsets count from now. Days and times of day are
// in zone, and so is the result. Of a local time that occurs twice, Parse returns
// the later instant (standard time). A local time that a change to daylight saving
// skips moves forward.
func Parse(text string, now time.Time, zone *time.Location) (time.Time, error) {
	if len(text) > maxText {
		return time.Time{}, fail(text, "longer than %d bytes", maxText)
	}
	s := blanks.Replace(strings.ToLower(strings.TrimSpace(text)))
	if digits(s) && !isDate(s) {
		return epoch(text, s, zone)
	}
	reference, offset := split(s)
	from, err := parseReference(reference, now.In(zone), zone)
	if err != nil {
		return time.Time{}, fail(text, "%v", err)
	}
	seconds, err := ParseOffset(offset)
	if err != nil {
		return time.Time{}, fail(text, "%v", err)
	}
	t := time.Unix(from.Unix()+seconds, int64(from.Nanosecond())).In(zone)
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}, fail(text, "the year is not between 1 and 9999")
	}
	return t, nil
}

// split cuts a text at its first plus sign, or else at its first minus sign.
// The offset keeps the sign.
func split(s string) (reference, offset string) {
	i := strings.IndexByte(s, '+')
	if i < 0 {
		i = strings.IndexByte(s, '-')
	}
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i:]
}

// isDate reports whether digits are a date YYYYMMDD, not epoch seconds.
func isDate(s string) bool {
	if len(s) != 8 {
		return false
	}
	return number(s[:4]) > 1900 && number(s[4:6]) < 13 && number(s[6:]) < 32
}

func epoch(text, s string, zone *time.Location) (time.Time, error) {
	seconds, err := strconv.ParseInt(s, 10, 64)
	if err != nil || seconds > 253402300799 {
		return time.Time{}, fail(text, "the year is above 9999; times are seconds since 1970")
	}
	return time.Unix(seconds, 0).In(zone), nil
}

// ParseOffset parses an interval: an optional sign, then groups of a number and a
// unit, to all of which the sign applies. It returns seconds. The empty text is 0.
// A unit is any word with one of these prefixes: s, min, h, d, w, mon (30 days), y
// (365 days). Unlike Parse it does not ignore case and blanks.
func ParseOffset(text string) (seconds int64, err error) {
	if len(text) > maxText {
		return 0, fail(text, "longer than %d bytes", maxText)
	}
	if text == "" {
		return 0, nil
	}
	rest, sign := text, int64(1)
	switch {
	case rest[0] == '-':
		rest, sign = rest[1:], -1
	case rest[0] == '+':
		rest = rest[1:]
	case !digits(rest[:1]):
		return 0, fail(text, "an interval starts with a sign or a digit")
	}
	for rest != "" {
		count, unit, after, err := group(text, rest)
		if err != nil {
			return 0, err
		}
		if count > maxOffsetDays*secondsPerDay/unit {
			return 0, fail(text, "the interval is longer than %d days", maxOffsetDays)
		}
		seconds += sign * count * unit
		if seconds > maxOffsetDays*secondsPerDay || seconds < -maxOffsetDays*secondsPerDay {
			return 0, fail(text, "the interval is longer than %d days", maxOffsetDays)
		}
		rest = after
	}
	return seconds, nil
}

// group parses one number and its unit at the beginning of rest.
func group(text, rest string) (count, unit int64, after string, err error) {
	n := prefix(rest, isDigit)
	if n == 0 {
		return 0, 0, "", fail(text, "a number is missing before %q", clip(rest))
	}
	count, err = strconv.ParseInt(rest[:n], 10, 64)
	if err != nil {
		return 0, 0, "", fail(text, "the number %s is too large", clip(rest[:n]))
	}
	rest = rest[n:]
	n = prefix(rest, isLetter)
	span, ok := Unit(rest[:n])
	if !ok {
		return 0, 0, "", fail(text, "unknown unit %q: units are s, min, h, d, w, mon, y", rest[:n])
	}
	return count, span.Seconds(), rest[n:], nil
}

// A Span is a unit of time.
type Span int

// The units, from short to long.
const (
	Second Span = iota
	Minute
	Hour
	Day
	Week
	Month
	Year
)

// Seconds returns the length of the unit: a month has 30 days, a year 365.
func (s Span) Seconds() int64 {
	return [...]int64{1, 60, 3600, secondsPerDay, 7 * secondsPerDay, 30 * secondsPerDay, 365 * secondsPerDay}[s]
}

// Unit returns the unit whose prefix a name has. A single m is no unit.
func Unit(name string) (Span, bool) {
	for _, u := range [...]struct {
		prefix string
		span   Span
	}{{"s", Second}, {"min", Minute}, {"h", Hour}, {"d", Day}, {"w", Week}, {"mon", Month}, {"y", Year}} {
		if strings.HasPrefix(name, u.prefix) {
			return u.span, true
		}
	}
	return 0, false
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// prefix counts the bytes at the beginning of s that are in a class.
func prefix(s string, class func(byte) bool) int {
	n := 0
	for n < len(s) && class(s[n]) {
		n++
	}
	return n
}

// digits reports whether s is one or more digits and nothing else.
func digits(s string) bool { return s != "" && prefix(s, isDigit) == len(s) }

// number returns the value of a short text of digits.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
