package head

import (
	"math/rand/v2"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// Each sample keeps the stamp of its append: open, sealed, shuffled, overwritten, of
// each kind.
func TestStamps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := NewStamped(0)
	type key struct {
		id model.SeriesNumber
		ms int64
	}
	want := map[key]int64{}
	stamp := int64(1_700_000_000_000)
	for range 4000 {
		stamp += rng.Int64N(3) * rng.Int64N(20_000)
		var b store.Batch
		var kinds []model.Kind
		for range 1 + rng.IntN(5) {
			id := model.SeriesNumber(1 + rng.IntN(12)*100)
			ms := stamp - rng.Int64N(10_000)
			if id%3 == 0 {
				ms = stamp - rng.Int64N(10_000_000) // shuffled
			}
			for range 1 + rng.IntN(4)/3*12 { // alone, or 13 that follow each other
				kinds = append(kinds, addTo(&b, id, sample{MS: ms, Value: 7, Text: "text", TTL: uint32(rng.IntN(20) / 19)}))
				want[key{id, ms}] = stamp
				ms++
			}
		}
		h.AppendStamped(&b, kinds, stamp)
	}
	run := Run{Stamps: true}
	n := 0
	for id := range h.Series() {
		var all model.Columns
		if _, err := h.Snapshot(id, model.AllTime, &run); err != nil {
			t.Fatal(err)
		}
		for _, f := range run.Fragments {
			if err := run.Decode(f, &all); err != nil {
				t.Fatal(err)
			}
		}
		for i := range run.Open.Times {
			all.AppendFrom(run.Kind, &run.Open, i)
		}
		if len(all.Stamps) != all.Len() {
			t.Fatalf("series %d: %d stamps of %d samples", id, len(all.Stamps), all.Len())
		}
		for i, ms := range all.Times {
			if got := all.Stamps[i]; got != want[key{id, ms}] {
				t.Fatalf("series %d at %d: stamp %d, want %d", id, ms, got, want[key{id, ms}])
			}
			n++
		}
		if _, err := h.Snapshot(id, model.AllTime, &Run{}); err != nil { // nobody asks
			t.Fatal(err)
		}
	}
	if n != len(want) {
		t.Errorf("%d samples, want %d", n, len(want))
	}
	if bytes, err := measured(h); err != nil || bytes != h.Bytes() {
		t.Errorf("%d bytes counted, %d measured, %v", h.Bytes(), bytes, err)
	}
}

// A head without stamps gives none.
func TestNoStamps(t *testing.T) {
	h := New(0)
	for ms := range int64(100) {
		write(h, 1, sample{MS: ms})
	}
	run := Run{Stamps: true}
	if _, err := h.Snapshot(1, model.AllTime, &run); err != nil {
		t.Fatal(err)
	}
	var all model.Columns
	for _, f := range run.Fragments {
		if err := run.Decode(f, &all); err != nil {
			t.Fatal(err)
		}
	}
	if len(run.Fragments) == 0 || len(all.Stamps)+len(run.Open.Stamps) > 0 {
		t.Errorf("%d fragments, stamps %v %v", len(run.Fragments), all.Stamps, run.Open.Stamps)
	}
}

// TestStampsCount: the memory of stamps counts towards the limit of a head.
func TestStampsCount(t *testing.T) {
	plain, stamped := New(0), NewStamped(0)
	const series = 1000 // with a block each
	for i := range int64(series) {
		var b store.Batch
		b.Reset(0)
		b.AddLong(store.Ref(1+i), i, i, 0)
		plain.Append(&b, []model.Kind{model.Long})
		stamped.AppendStamped(&b, []model.Kind{model.Long}, 1_700_000_000_000+i)
	}
	if p, s := plain.Expanded(), stamped.Expanded(); s != p+series*stampBytes {
		t.Errorf("%d bytes with stamps, %d without", s, p)
	}
}

// TestStampsOfManyBlocks: each series keeps its stamp, also those whose blocks are the first and
// the last of a slab.
func TestStampsOfManyBlocks(t *testing.T) {
	h := NewStamped(0)
	const firstMS = 1_700_000_000_000
	series := int64(2*slabBlocks*len(h.shards) + 1) // with a block each
	for i := range series {
		var b store.Batch
		b.Reset(0)
		b.AddLong(store.Ref(1+i), i, i, 0)
		h.AppendStamped(&b, []model.Kind{model.Long}, firstMS+i)
	}
	run := Run{Stamps: true}
	for i := range series {
		if _, err := h.Snapshot(model.SeriesNumber(1+i), model.AllTime, &run); err != nil {
			t.Fatal(err)
		}
		if got := run.Open.Stamps; len(got) != 1 || got[0] != firstMS+i {
			t.Fatalf("series %d has stamps %v, want %d", 1+i, got, firstMS+i)
		}
	}
}
