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
