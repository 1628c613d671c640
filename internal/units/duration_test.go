package units

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "1h30m": 90 * time.Minute, "0s": 0, "-4h": -4 * time.Hour,
		"0d": 0, "30d": 720 * time.Hour, "8w": 8 * 168 * time.Hour, "-1d": -24 * time.Hour, "106751d": 106751 * 24 * time.Hour,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "w", "30", "1.5d", "1d12h", "30 d", "106752d", "-106752d", "15251w", "99999999999999999999d", "3y"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]float64{0: 0, time.Microsecond: 0.001, 1234567 * time.Nanosecond: 1.234, 2 * time.Second: 2000, -1500 * time.Microsecond: -1.5} {
		if got := Milliseconds(d); got != want {
			t.Errorf("%v: %v, want %v", d, got, want)
		}
	}
}
