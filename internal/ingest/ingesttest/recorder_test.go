package ingesttest

import (
	"context"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// TestForget: a batch with a forgotten series, or of an epoch that is over, is
// stale, and a series that is created again is the same one.
func TestForget(t *testing.T) {
	ctx := context.Background()
	r := &Recorder{}
	a, b := model.Series{Metric: "a", Tags: model.MustTags("h", "x"), Type: model.TypeLong}, model.Series{Metric: "b", Tags: model.MustTags("h", "x"), Type: model.TypeString}
	write := func(s model.Series, epoch uint64) error {
		ref, err := r.Create(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		batch := store.Batch{Epoch: epoch}
		if s.Type == model.TypeLong {
			batch.AddLong(ref, 1, 5, 60)
		} else {
			batch.AddBytes(ref, 2, []byte("x"), 0)
		}
		return r.Append(ctx, &batch)
	}
	held, err := r.Create(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(b, 0); err != nil {
		t.Error(err)
	}
	r.Forget(a)
	batch := store.Batch{}
	batch.AddLong(held, 1, 1, 0)
	if err := r.Append(ctx, &batch); err != store.ErrStale {
		t.Errorf("a forgotten series: %v", err)
	}
	if err := write(a, 0); err != nil {
		t.Error(err)
	}
	r.Forget()
	if _, known := r.Lookup(a.AppendKey(nil)); known || r.Epoch() != 1 || r.SeriesCount() != 0 {
		t.Errorf("in epoch %d there are %d series, and a is among them: %v", r.Epoch(), r.SeriesCount(), known)
	}
	if err := write(b, 0); err != store.ErrStale {
		t.Errorf("an epoch that is over: %v", err)
	}
	if err := write(b, 1); err != nil {
		t.Error(err)
	}
	if got, want := r.Text(), "b{h=x} string 2 \"x\"\na{h=x} long 1 5 ttl=60\nb{h=x} string 2 \"x\""; got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
}
