package ingest

import (
	"context"
	"errors"
	"testing"
	"time"

	"varve/internal/store"
)

// A sender that has more than a second's samples ahead of it is refused if it has no
// time, and held up until its turn if it has. What was stored counts, however large the
// block was.
func TestSampleRate(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := newSampleRate("", 100, now)
	free := func(want bool, patience time.Duration) {
		t.Helper()
		_, err := r.wait(t.Context(), now, patience)
		var limit *store.LimitError
		switch {
		case want && err != nil:
			t.Fatalf("refused: %v", err)
		case !want && (!errors.As(err, &limit) || limit.Limit != "ingest.samples_per_second" || limit.Max != 100):
			t.Fatalf("got %v, want the limit", err)
		}
	}
	now = now.Add(time.Second) // the first second is saved up
	r.stored(now, 100)
	free(true, time.Millisecond)
	r.stored(now, 250)
	free(false, time.Second)
	now = now.Add(2490 * time.Millisecond)
	free(false, time.Millisecond)
	free(true, time.Second) // waits 10 ms
	now = now.Add(10 * time.Millisecond)
	free(true, time.Millisecond)

	r.stored(now, 1000)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if waited, err := r.wait(ended, now, 0); !waited || !errors.Is(err, context.Canceled) {
		t.Errorf("a sender that has left: waited %v, error %v", waited, err)
	}
	r.set(0, now)
	free(true, time.Millisecond)
	r.stored(now, 1_000_000)
	free(true, time.Millisecond)
}

// The limit of a tenant is named where it is set.
func TestLimitKey(t *testing.T) {
	for section, want := range map[string]string{"": "ingest.samples_per_second", "tenants.a.limits": "tenants.a.limits.samples_per_second"} {
		if got := limitKey(section, "ingest.samples_per_second"); got != want {
			t.Errorf("section %q: %s, want %s", section, got, want)
		}
	}
}
