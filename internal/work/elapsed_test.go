package work

import (
	"testing"
	"time"
)

// The machine may sleep, which may stop the monotonic clock, and the wall clock may be
// set back.
func TestElapsed(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		from, to time.Time
		want     time.Duration
	}{
		{now, now.Add(time.Second), time.Second},
		{now.Round(0), now.Round(0).Add(time.Minute), time.Minute},
		{now, now.Add(-time.Second), -time.Second},
	} {
		if got := Elapsed(test.from, test.to); got != test.want {
			t.Errorf("from %v to %v: %v, want %v", test.from, test.to, got, test.want)
		}
	}
}
