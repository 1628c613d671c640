package agg

import (
	"context"
	"errors"
	"testing"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// A query that is refused does not start.
func TestRefusedStart(t *testing.T) {
	config := query.DefaultConfig()
	config.MaxConcurrent, config.MaxQueued = 1, 0
	f := newFixture(t, config)
	run, err := f.Start(t.Context(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := f.Start(t.Context(), Query{}); second != nil || !store.IsBusy(err) {
		t.Errorf("a second query: %v, %v", second, err)
	}
	run.Close(nil)
}

// An endingStore is a store in which some series cannot be read to their end.
type endingStore struct{ store.Viewer }

type endingView struct{ store.View }

type endingCursor struct{ store.Cursor }

var errEnds = errors.New("the rest cannot be read")

func (s endingStore) View(ctx context.Context) (store.View, error) {
	v, err := s.Viewer.View(ctx)
	return endingView{v}, err
}

func (v endingView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	c := v.View.Read(ctx, s, o)
	if host, _ := s.Tags.Get("h"); host == "broken" {
		return endingCursor{c}
	}
	return c
}

func (c endingCursor) Next() (*store.Block, error) {
	if b, err := c.Cursor.Next(); b != nil || err != nil {
		return b, err
	}
	return nil, errEnds
}

// Where an incomplete answer is wanted, the groups before the one that cannot be read are complete.
func TestGroupsBeforeAnError(t *testing.T) {
	good := newFixture(t, query.DefaultConfig())
	for _, host := range []string{"a", "b", "broken", "c"} {
		good.put("m", model.MustTags("h", host), sample{1, 1}, sample{2, 2})
	}
	f := fixtureOver(t, endingStore{good.store}, query.DefaultConfig())
	for partial, want := range map[bool]int{false: 0, true: 2} {
		for name, steps := range map[string][]Step{"points": nil, "sums": {newStep(t, "sum", nil)}} {
			q := Query{Range: model.TimeRange{EndMS: 10}, Metrics: []MetricQuery{{Metric: "m", GroupBy: []GroupBy{&TagGroupBy{Tags: []string{"h"}}}, Steps: steps}}}
			q.Partial = partial
			run, err := f.Start(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			groups, _, err := collect(run)
			run.Close(err)
			if !errors.Is(err, errEnds) || len(groups) != want {
				t.Errorf("%s, partial %t: %d groups, %v, want %d and an error", name, partial, len(groups), err, want)
			}
		}
	}
}
