package downsample

import (
	"fmt"
	"math"
	"testing"
)

// Hours are always bounded, and lose no time of any metric.
func TestHoursAreBounded(t *testing.T) {
	var u Hours
	const metrics, hours = 2 * hoursMetrics, 3 * hoursSpans
	for m := range metrics {
		for n := range hours {
			u.Add(fmt.Sprint(m), int64(2*n)*hourMS+1)
		}
	}
	if len(u.spans) > hoursMetrics+1 {
		t.Errorf("%d metrics", len(u.spans))
	}
	for m := range metrics {
		all := u.of(fmt.Sprint(m))
		for n := range hours {
			if left := (Spans{hourOf(int64(2*n) * hourMS)}).without(all[0]); len(all) == 1 && len(left) > 0 {
				t.Fatalf("metric %d: hour %d is not noted in %v", m, 2*n, all)
			}
		}
		if len(all) > 2*hoursSpans {
			t.Errorf("metric %d: %d stretches", m, len(all))
		}
	}
	for _, ms := range []int64{math.MinInt64, -1, 0, math.MaxInt64 - 1} {
		if s := hourOf(ms); ms > math.MinInt64 && s.FromMS > ms || s.UntilMS <= ms || s.UntilMS-s.FromMS > hourMS {
			t.Errorf("the hour of %d is %v", ms, s)
		}
	}
}
