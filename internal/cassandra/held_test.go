package cassandra

import (
	"errors"
	"sync/atomic"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// TestMemoryOfHeldSamples: samples of the spool that a cursor holds count as memory of the request until
// the cursor is closed.
func TestMemoryOfHeldSamples(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	s := ready(t, openStore(t, c, Options{}))
	put(t, s, "m", "a", story(0))
	var held, limit atomic.Int64
	full := errors.New("full")
	hold := func(bytes int64) error {
		if limit.Load() > 0 && held.Load()+bytes > limit.Load() {
			return full
		}
		held.Add(bytes)
		return nil
	}
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for series, err := range v.Select(t.Context(), store.Selection{Metric: "m", Range: model.AllTime, Hold: hold}) {
		if err != nil {
			t.Fatal(err)
		}
		before := held.Load()
		cursor := v.Read(t.Context(), series, all())
		if n := held.Load() - before; n != samplesOfAStory*24 {
			t.Errorf("%d bytes are held", n)
		}
		if cursor.Close(); held.Load() != before {
			t.Errorf("%d bytes are held after the end, and %d before", held.Load(), before)
		}
		limit.Store(before + 1)
		cursor = v.Read(t.Context(), series, all())
		if block, err := cursor.Next(); !errors.Is(err, full) || held.Load() != before {
			t.Errorf("with little memory: %v, %v, %d bytes are held", block, err, held.Load()-before)
		}
		cursor.Close()
		limit.Store(0)
	}
}
