package index_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/store"
)

// TestConcurrentUse adds and removes series in two goroutines while others query; it is
// meant for the race detector. Series of one goroutine that exist all the time must
// always be found.
func TestConcurrentUse(t *testing.T) {
	x := index.New()
	series := func(i int) model.Series {
		return model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("all", "same", "host", fmt.Sprintf("host-%d", i))}
	}
	const steady, moving = 1500, 100 // steady is more than a bitmap needs
	for i := range steady {
		x.Add(model.SeriesNumber(i), series(i))
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 2 {
		writers.Go(func() {
			for round := range 3 {
				for i := range moving {
					x.Add(model.SeriesNumber(steady+w*moving+i), series(steady+w*moving+i))
				}
				for i := range moving {
					x.Remove(model.SeriesNumber(steady+w*moving+(i+round)%moving), series(steady+w*moving+(i+round)%moving))
				}
			}
		})
	}
	matchers := [][]model.Matcher{
		nil,
		{{Tag: "all", Values: []string{"same"}}},
		{{Tag: "host", Patterns: []*model.Pattern{pattern(t, "host-.*")}}},
	}
	for _, ms := range matchers {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				ids, err := x.Select(context.Background(), "m", ms, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if n := ids.Rank(steady - 1); n != steady {
					t.Errorf("Select(%v) found %d of %d series", ms, n, steady)
					return
				}
				ids.Clear()
				names, _, err := x.Names(context.Background(), store.NamesQuery{Kind: store.TagValues, Metric: "m", Tag: "host", Prefix: "host-1", Limit: 50})
				if err != nil || len(names) != 50 {
					t.Errorf("Names: %d, %v", len(names), err)
					return
				}
				x.Stats()
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	if got := x.Len(); got != steady {
		t.Errorf("%d series are left, want %d", got, steady)
	}
}
