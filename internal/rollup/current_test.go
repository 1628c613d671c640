package rollup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A remembering store has read each series before it had samples, and answers from
// that, unless a query requires current data.
type remembering struct {
	*reference.Store
	remembers bool
}

func (r *remembering) View(ctx context.Context) (store.View, error) {
	now, err := r.Store.View(ctx)
	if err != nil || !r.remembers {
		return now, err
	}
	return &remembered{View: now}, nil
}

type remembered struct {
	store.View
	current bool
}

func (v *remembered) ReadCurrent() { v.current = true }

func (v *remembered) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	if !v.current {
		return empty{}
	}
	return v.View.Read(ctx, s, o)
}

type empty struct{}

func (empty) Next() (*store.Block, error) { return nil, nil }
func (empty) Close()                      {}

// TestRunsSeeWhatOthersStored: points that another server has stored in a bucket are in
// the result of a run that computes the bucket afterwards, and an outdated result that
// another server has stored is replaced, although this server has cached the former
// state.
func TestRunsSeeWhatOthersStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := &remembering{Store: reference.New(nil)}
		h := &harness{T: t, store: front.Store, front: front}
		h.restart(nil)
		h.start()
		defer func() { h.stop() }()
		time.Sleep(2 * time.Hour)
		h.put("src", "a", 1, at(0, 10, 0))
		h.put("src", "b", 1, at(0, 10, 0))
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		const backfill = "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-01-00-00-000"
		h.do(204, "GET", backfill, "")
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:10 1\n{host=b,saved_from=src} 2000-01-01T00:10 1")

		front.remembers = true
		h.put("src", "a", 5, at(0, 10, 1))
		h.put("src", "b", 5, at(0, 10, 0))
		outdated := model.Series{Metric: "dst", Tags: model.MustTags("host", "b", "saved_from", "src"), Type: model.TypeLong}
		other := store.Batch{Epoch: h.store.Epoch()}
		ref, err := h.store.Create(t.Context(), outdated)
		if err != nil {
			t.Fatal(err)
		}
		other.AddLong(ref, at(0, 10, 30), 4, 0)
		if err := h.store.Append(t.Context(), &other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		h.do(204, "GET", backfill, "")
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:10 6\n{host=b,saved_from=src} 2000-01-01T00:10 5")
	})
}
