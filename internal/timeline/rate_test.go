package timeline

import (
	"errors"
	"testing"
	"time"

	"varve/internal/store"
)

// TestRateSaysWhen: events that are refused for timeline.rate_max are accepted after the time
// that the error names, and not before.
func TestRateSaysWhen(t *testing.T) {
	const rate = 4
	now := time.Unix(1_000_000, 0)
	l := &line{name: "a"}
	if err := l.take(rate*burst, rate, now); err != nil {
		t.Fatal(err)
	}
	var limit *store.LimitError
	if err := l.take(10, rate, now); !errors.As(err, &limit) || limit.Wait != 2500*time.Millisecond {
		t.Fatalf("10 events of 4 a second: %v, a wait of %v", err, limit.Wait)
	}
	if err := l.take(10, rate, now.Add(limit.Wait-time.Millisecond)); err == nil {
		t.Error("taken before the wait was over")
	}
	if err := l.take(10, rate, now.Add(limit.Wait)); err != nil {
		t.Error(err)
	}
	if err := l.take(1000, rate, now.Add(limit.Wait)); !errors.As(err, &limit) || limit.Wait != burst*time.Second {
		t.Errorf("more events than any one call may have: %v, a wait of %v", err, limit.Wait)
	}
}
