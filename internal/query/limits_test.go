package query

import (
	"context"
	"errors"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// Limits that change hold for queries that begin from then on. A query that runs
// keeps what it began with, and its slot.
func TestSetLimits(t *testing.T) {
	config := DefaultConfig()
	config.MaxSeries, config.MaxConcurrent = 1, 1
	f := newFixture(t, config)
	f.put("m", model.MustTags("h", "a"), sample{1, 1})
	f.put("m", model.MustTags("h", "b"), sample{1, 1})
	start := func() *Session {
		t.Helper()
		r, err := f.Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ask := func(r *Session) error {
		l := r.Lease()
		_, err := r.Collect(store.Selection{Metric: "m", Range: model.AllTime}, &l, nil)
		return err
	}
	var limit *store.LimitError
	old := start()
	waits := make(chan *Session)
	go func() { waits <- start() }()
	for f.Engine.Queued() == 0 {
		select {
		case r := <-waits:
			r.Close(nil)
			t.Fatal("two queries run in one slot")
		default:
		}
	}
	config.MaxSeries, config.MaxConcurrent = 2, 2
	f.Engine.SetLimits(config)
	fresh := <-waits // the new slot is that of the query that waited
	if err := ask(fresh); err != nil {
		t.Errorf("a query after the change: %v", err)
	}
	if err := ask(old); !errors.As(err, &limit) || limit.Max != 1 {
		t.Errorf("a query from before the change: %v", err)
	}

	// Of two slots one goes when it is given back.
	config.MaxConcurrent = 1
	f.Engine.SetLimits(config)
	old.Close(nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if r, err := f.Begin(gone, Request{}); !errors.Is(err, context.Canceled) {
		r.Close(nil)
		t.Errorf("a second query in one slot: %v", err)
	}
	fresh.Close(nil)
	start().Close(nil)
	if n := f.slots.inUse(); n != 0 || f.slots.free != 1 {
		t.Errorf("at the end %d slots are taken and %d are free, want 1 that is free", n, f.slots.free)
	}
}
