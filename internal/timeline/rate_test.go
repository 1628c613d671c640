package timeline

import (
	"errors"
	"testing"
	"time"

	"varve/internal/store"
)

// TestRateSaysWhen: events that are refused for timeline.rate_max are taken after the time
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
		t.Errorf("more than may ever come at once: %v, a wait of %v", err, limit.Wait)
	}
}

// TestRateOfManyEvents: more events than may ever come at once are taken after the time that the
// error names. What comes after them waits until the rate is kept.
func TestRateOfManyEvents(t *testing.T) {
	const rate, many = 4, 1000
	now := time.Unix(1_000_000, 0)
	l := &line{name: "a"}
	if err := l.take(1, rate, now); err != nil {
		t.Fatal(err)
	}
	var limit *store.LimitError
	for n := range 3 {
		if err := l.take(many, rate, now); !errors.As(err, &limit) || limit.Wait <= 0 {
			t.Fatalf("%d events of %d a second: %v", many, rate, err)
		}
		now = now.Add(limit.Wait)
		if err := l.take(many, rate, now); err != nil {
			t.Fatalf("sent again after %v, the %d. time: %v", limit.Wait, n+1, err)
		}
		if err := l.take(1, rate, now); !errors.As(err, &limit) || limit.Wait != (many-burst*rate+1)*time.Second/rate {
			t.Fatalf("an event after them: %v, a wait of %v", err, limit.Wait)
		}
		if err := l.take(1, rate, now.Add(limit.Wait)); err != nil {
			t.Fatal(err)
		}
		now = now.Add(limit.Wait)
	}
}
