package downsample

import (
	"fmt"
	"math"
	"testing"
)

// Notes without a task are bounded, at all times, and lose no time of any metric.
func TestUnreadIsBounded(t *testing.T) {
	u := &unread{spans: map[string]Spans{}}
	const metrics, hours = 2 * unreadMetrics, 3 * unreadSpans
	for m := range metrics {
		for n := range hours {
			u.add(fmt.Sprint(m), unreadSpan(int64(2*n)*unreadGrainMS+1))
		}
	}
	if len(u.spans) > unreadMetrics+1 {
		t.Errorf("%d metrics", len(u.spans))
	}
	for m := range metrics {
		all := u.of(fmt.Sprint(m))
		for n := range hours {
			if left := (Spans{unreadSpan(int64(2*n) * unreadGrainMS)}).without(all[0]); len(all) == 1 && len(left) > 0 {
				t.Fatalf("metric %d: hour %d is not noted in %v", m, 2*n, all)
			}
		}
		if len(all) > 2*unreadSpans {
			t.Errorf("metric %d: %d stretches", m, len(all))
		}
	}
	for _, ms := range []int64{math.MinInt64, -1, 0, math.MaxInt64 - 1} {
		if s := unreadSpan(ms); ms > math.MinInt64 && s.FromMS > ms || s.UntilMS <= ms || s.UntilMS-s.FromMS > unreadGrainMS {
			t.Errorf("the hour of %d is %v", ms, s)
		}
	}
}
