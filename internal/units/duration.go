package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// ParseDuration parses a time as [time.ParseDuration] does, and a whole number of days or
// weeks, such as 30d or 8w. A day has 24 hours.
func ParseDuration(text string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": day, "w": week} {
		number, ok := strings.CutSuffix(text, suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if most := math.MaxInt64 / int64(unit); err != nil || n > most || n < -most {
			return 0, fmt.Errorf("%q: want a whole number of days or weeks, such as 30d or 8w, of at most 292 years", text)
		}
		return time.Duration(n) * unit, nil
	}
	return time.ParseDuration(text)
}

// Milliseconds returns d in milliseconds, to the microsecond.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// FormatDuration is Duration.String without zero minutes and seconds at the
// end: 504h and not 504h0m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
