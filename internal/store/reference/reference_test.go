package reference

import (
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// TestByHand is one small story, checked without package storetest: the oracle must not be
// judged only by what it judges.
func TestByHand(t *testing.T) {
	ctx := t.Context()
	now := time.UnixMilli(100_000)
	r := New(func() time.Time { return now })
	load := model.Series{Metric: "load", Tags: model.MustTags("host", "a"), Type: model.TypeLong}
	ref, err := r.Create(ctx, load)
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(r.Epoch())
	b.AddLong(ref, 3000, 3, 0)
	b.AddLong(ref, 1000, 1, 0)
	b.AddLong(ref, 1000, 11, 0)
	b.AddLong(ref, 99_500, 4, 1) // gone at 100,500
	if err := r.Append(ctx, &b); err != nil {
		t.Fatal(err)
	}

	times := func(o store.ReadOptions) (got []int64) {
		v, err := r.View(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		var list []store.Series
		for s, err := range v.Select(ctx, store.Selection{Metric: "load", Range: o.Range}) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
		if len(list) != 1 {
			t.Fatalf("Select: %v", list)
		}
		c := v.Read(ctx, list[0], o)
		defer c.Close()
		for {
			block, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if block == nil {
				return got
			}
			got = append(got, block.Times...)
			if block.Times[0] == 1000 && block.Values[0] != 11 {
				t.Errorf("value at 1000 is %d, want the later write, 11", block.Values[0])
			}
		}
	}
	check := func(what string, got []int64, want ...int64) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
	}
	check("all", times(store.ReadOptions{Range: model.AllTime}), 1000, 3000, 99_500)
	check("last two", times(store.ReadOptions{Range: model.AllTime, Descending: true, Limit: 2}), 99_500, 3000)
	check("ends belong", times(store.ReadOptions{Range: model.TimeRange{StartMS: 1000, EndMS: 3000}}), 1000, 3000)
	now = time.UnixMilli(100_500)
	check("expired", times(store.ReadOptions{Range: model.AllTime}), 1000, 3000)

	if err := r.Delete(ctx, store.Deletion{Metric: "load", Range: model.TimeRange{StartMS: 2000, EndMS: 3000}}); err != nil {
		t.Fatal(err)
	}
	check("deleted", times(store.ReadOptions{Range: model.AllTime}), 1000)
	r = r.Reopen()
	check("reopened", times(store.ReadOptions{Range: model.AllTime}), 1000)
}
