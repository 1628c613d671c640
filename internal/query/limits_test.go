package query

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// Limits that change hold for queries that begin from then on. A query that runs
// keeps what it began with, and its place.
func TestSetLimits(t *testing.T) {
	config := DefaultConfig()
	config.MaxSeries, config.MaxConcurrent = 1, 1
	f := newFixture(t, config)
	f.put("m", model.MustTags("h", "a"), sample{1, 1})
	f.put("m", model.MustTags("h", "b"), sample{1, 1})
	request := Request{Range: model.AllTime, Metrics: []MetricQuery{{Metric: "m"}}}
	start := func() *Run {
		t.Helper()
		r, err := f.Engine.Start(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ask := func(r *Run) error {
		result, err := r.Metric(0)
		if err == nil {
			result.Close()
		}
		return err
	}
	var limit *store.LimitError
	old := start()
	waits := make(chan *Run)
	go func() { waits <- start() }()
	for f.Engine.Queued() == 0 {
		select {
		case r := <-waits:
			r.Close(nil)
			t.Fatal("two queries run in one place")
		default:
		}
	}
	config.MaxSeries, config.MaxConcurrent = 2, 2
	f.Engine.SetLimits(config)
	fresh := <-waits // the new place is that of the query that waited
	if err := ask(fresh); err != nil {
		t.Errorf("a query after the change: %v", err)
	}
	if err := ask(old); !errors.As(err, &limit) || limit.Max != 1 {
		t.Errorf("a query from before the change: %v", err)
	}

	// Of two places one goes when it is given back.
	config.MaxConcurrent = 1
	f.Engine.SetLimits(config)
	old.Close(nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if r, err := f.Engine.Start(gone, request); !errors.Is(err, context.Canceled) {
		r.Close(nil)
		t.Errorf("a second query in one place: %v", err)
	}
	fresh.Close(nil)
	start().Close(nil)
}

// The names of tags in a group-by are the client's, and each group is ordered by a
// text that holds them all.
func TestOrderOfGroupsCountsAsMemory(t *testing.T) {
	config := DefaultConfig()
	config.MaxMemory = 8 * units.MiB
	f := newFixture(t, config)
	for i := range 100 {
		f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{1, 1})
	}
	m := MetricQuery{Metric: "m", GroupBy: []GroupBy{&TagGroupBy{Tags: []string{strings.Repeat("x", 1<<20), "h"}}}}
	_, _, err := f.ask(0, 10, "UTC", m)
	var limit *store.LimitError
	if !errors.As(err, &limit) || limit.Limit != "query.max_memory" {
		t.Errorf("100 groups that are ordered by 1 MiB each: %v", err)
	}
}

// Tags that are collected from many series count as memory.
func TestTagsTakeMemory(t *testing.T) {
	config := DefaultConfig()
	config.MaxMemory = units.MiB
	f := newFixture(t, config)
	for i := range 6000 {
		f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{1, 1})
	}
	f.put("small", model.MustTags("h", "a"), sample{1, 1})
	run, err := f.Start(t.Context(), Request{Range: model.TimeRange{StartMS: 0, EndMS: 10}, Metrics: []MetricQuery{{Metric: "m"}, {Metric: "small"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	var limit *store.LimitError
	if _, err := run.Tags(0); !errors.As(err, &limit) || limit.Limit != "query.max_memory" {
		t.Errorf("tags of 6,000 series: %v", err)
	}
	if _, _, err := run.Names(store.NamesQuery{Kind: store.TagValues, Metric: "m"}, NamesFilter{Range: model.AllTime}); !errors.As(err, &limit) {
		t.Errorf("tag values of 6,000 series: %v", err)
	}
	if tags, err := run.Tags(1); err != nil || len(tags) != 1 {
		t.Errorf("tags of a series: %v, %v", tags, err)
	}
}
