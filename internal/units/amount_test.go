package units

import (
	"testing"
	"time"
)

// An error about a setting writes times as a configuration file has them.
func TestTimesInErrors(t *testing.T) {
	for want, err := range map[string]error{
		"a: want 1m to 744h, got 1s":         Range("a", time.Second, time.Minute, 744*time.Hour),
		"a: want 0s to 1h, got 1h30m":        Range("a", 90*time.Minute, 0, time.Hour),
		"a: want at least 1m, got 1.5s":      AtLeast("a", 1500*time.Millisecond, time.Minute),
		"a: want whole hours, got 2m":        Check(false, "a", "whole hours", 2*time.Minute),
		"a: -1h is not greater than 0":       Positive("a", -time.Hour),
		"a: -10m is negative":                NotNegative("a", -10*time.Minute),
		"a: want 1KiB to 1MiB, got 5":        Range("a", Bytes(5), KiB, MiB),
		"a: want 1 to 4096, got 0":           Range("a", 0, 1, 4096),
		"a: want 10ms to 1h0m1s, got 2h0m5s": Range("a", 2*time.Hour+5*time.Second, 10*time.Millisecond, time.Hour+time.Second),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
