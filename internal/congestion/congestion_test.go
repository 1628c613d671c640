package congestion

import (
	"testing"
	"time"
)

// A line is congested once nobody was served soon for a while, and no longer as soon as
// somebody is.
func TestLine(t *testing.T) {
	const patience = Patience(10 * time.Second)
	began := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	var line Line
	line.Short(began)
	for _, step := range []struct {
		at, waited time.Duration // since the beginning; of a caller that is served then
		congested  bool
	}{
		{1 * time.Second, time.Second, false},
		{5 * time.Second, 2 * time.Second, false},
		{5*time.Second + 1, 2 * time.Second, true},
		{6 * time.Second, 500*time.Millisecond + 1, true},
		{7 * time.Second, 500 * time.Millisecond, false},
		{12 * time.Second, 5 * time.Second, false},
		{13 * time.Second, 5 * time.Second, true},
	} {
		now := began.Add(step.at)
		line.Served(now, step.waited, patience)
		if got := line.Congested(now, patience); got != step.congested {
			t.Errorf("after %s: congested %t, want %t", step.at, got, step.congested)
		}
	}
	if patience.Enough() != 2*time.Second {
		t.Errorf("in a congested line a caller waits %s", patience.Enough())
	}
}
