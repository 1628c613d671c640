package graphite

import (
	"errors"
	"testing"

	"varve/internal/query"
	"varve/internal/store"
)

// TestBlankPointsAreCharged: the memory of the longest run of points is charged to the query, once,
// and a query that has no room for it is refused.
func TestBlankPointsAreCharged(t *testing.T) {
	limits := query.DefaultConfig()
	limits.MaxMemory = 1 << 20
	session, err := open(t, DefaultConfig(), limits).queries.Begin(t.Context(), query.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(nil)
	lease := session.Lease()
	defer lease.Release()
	r := &reader{session: session, lease: &lease}
	for _, c := range []struct {
		points int
		held   int64
	}{{1000, 8000}, {500, 8000}, {3000, 24000}} {
		values, err := r.blank(c.points)
		if err != nil || len(values) != c.points || values[c.points-1] == values[c.points-1] || lease.Held() != c.held {
			t.Errorf("%d points: %d, %v, with %d bytes charged, want %d", c.points, len(values), err, lease.Held(), c.held)
		}
	}
	if _, err := r.blank(1 << 18); !errors.As(err, new(*store.LimitError)) {
		t.Errorf("more points than a query has memory for: %v", err)
	}
}
