package head

import (
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// fragmented returns a head with a series of n fragments, at the times 0 to n-1.
func fragmented(n int) *Head {
	h := New(48 << 20)
	var b store.Batch
	for i := range n {
		b.AddLong(1, int64(i), int64(i), uint32(1000+i%2))
	}
	h.Append(&b, slices.Repeat([]model.Kind{model.Long}, n))
	return h
}

// TestManyFragments: a series of so many fragments that they are collected in steps is read as a whole, also if
// samples are appended and deleted between two steps.
func TestManyFragments(t *testing.T) {
	const n = 3*collectStep + 2
	h := fragmented(n)
	var run Run
	for _, within := range []model.TimeRange{model.AllTime, {StartMS: 0, EndMS: 5}, {StartMS: n - 5, EndMS: n}, {StartMS: collectStep, EndMS: 3 * collectStep}} {
		if _, err := h.Snapshot(1, within, &run); err != nil {
			t.Fatal(err)
		}
		var all model.Columns
		if err := run.DecodeAll(&all); err != nil {
			t.Fatal(err)
		}
		last := min(within.EndMS, n-1)
		first := max(within.StartMS, 0)
		if all.Len() != int(last-first+1) || all.Times[0] != first || all.Times[all.Len()-1] != last || !slices.IsSorted(all.Times) {
			t.Errorf("%v: %d samples", within, all.Len())
		}
	}

	run = Run{}
	s := &h.shards[0]
	next := s.collectSome(s.record(0, 1).fragment, 0, model.AllTime, &run)
	if len(run.Fragments) != collectStep || next == 0 {
		t.Fatalf("the first step collects %d fragments, and goes on at %d", len(run.Fragments), next)
	}
	var b store.Batch
	b.AddLong(1, n, n, 1000)
	b.AddLong(1, n+1, n+1, 1001)
	h.Append(&b, []model.Kind{model.Long, model.Long})
	if err := h.Delete(1, model.TimeRange{StartMS: collectStep, EndMS: 3 * collectStep}); err != nil {
		t.Fatal(err)
	}
	for next != 0 {
		next = s.collectSome(next, 0, model.AllTime, &run)
	}
	if got := len(run.Fragments); got != n-1 { // the newest sample is open
		t.Errorf("%d fragments, want the %d of the beginning", got, n-1)
	}
	if _, err := h.Snapshot(1, model.AllTime, &run); err != nil || len(run.Fragments) != n+1-(2*collectStep+1) {
		t.Errorf("after the delete: %d fragments, %v", len(run.Fragments), err)
	}
}
