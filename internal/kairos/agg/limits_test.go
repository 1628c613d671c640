package agg

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/units"
)

// The client chooses the group-by tags, and each group has a sort key with all of them.
func TestOrderOfGroupsCountsAsMemory(t *testing.T) {
	config := query.DefaultConfig()
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

// A query waits if other queries use all memory.
func TestQueriesShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := query.DefaultConfig()
		config.TotalMemory, config.MaxWait = 3*units.MiB, 10*time.Second
		f := newFixture(t, config)
		var samples []sample
		for i := range 100_000 {
			samples = append(samples, sample{int64(i), i})
		}
		f.put("m", model.MustTags("h", "a"), samples...)
		sorted := MetricQuery{Metric: "m", Steps: []Step{newStep(t, "percentile", Args{"percentile": 0.5, "sampling": Sampling{1, Days}})}}
		for _, freed := range []time.Duration{time.Hour, 5 * time.Second} {
			answer := f.Unsent(t.Context(), "")
			if err := answer.AtLeast(5 << 19); err != nil {
				t.Fatal(err)
			}
			give := time.AfterFunc(freed, answer.Free)
			began := time.Now()
			_, _, err := f.ask(0, 1e6, "UTC", sorted)
			if waited := time.Since(began); store.IsBusy(err) != (freed > config.MaxWait) || waited != min(freed, config.MaxWait) {
				t.Errorf("memory that is free after %s: %v after %s", freed, err, waited)
			}
			if give.Stop() {
				answer.Free()
			}
		}
	})
}

// The window of a moving average is charged to memory.
func TestMovingAverageTakesMemory(t *testing.T) {
	config := query.DefaultConfig()
	config.MaxMemory = units.MiB
	f := newFixture(t, config)
	var samples []sample
	for i := range 100_000 {
		samples = append(samples, sample{int64(i), i})
	}
	f.put("m", model.MustTags("h", "a"), samples...)
	for size, refused := range map[int64]bool{10: false, 90_000: true, math.MaxInt64: true} {
		_, _, err := f.ask(0, 1e6, "UTC", MetricQuery{Metric: "m", Steps: []Step{newStep(t, "sma", Args{"size": size}), newStep(t, "count", Args{"sampling": Sampling{1, Days}})}})
		var limit *store.LimitError
		if errors.As(err, &limit) != refused || err != nil && (!refused || limit.Limit != "query.max_memory") {
			t.Errorf("the average of %d of 100,000 points: %v", size, err)
		}
	}
}

// Tags collected from many series are charged to memory.
func TestTagsTakeMemory(t *testing.T) {
	config := query.DefaultConfig()
	config.MaxMemory = units.MiB
	f := newFixture(t, config)
	for i := range 9000 {
		f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{1, 1})
	}
	f.put("small", model.MustTags("h", "a"), sample{1, 1})
	run, err := f.Start(t.Context(), Query{Range: model.TimeRange{StartMS: 0, EndMS: 10}, Metrics: []MetricQuery{{Metric: "m"}, {Metric: "small"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	var limit *store.LimitError
	if _, err := run.Tags(0); !errors.As(err, &limit) || limit.Limit != "query.max_memory" {
		t.Errorf("tags of 9,000 series: %v", err)
	}
	if _, _, err := run.Names(store.NamesQuery{Kind: store.TagValues, Metric: "m"}, query.NamesFilter{Range: model.AllTime}); !errors.As(err, &limit) {
		t.Errorf("tag values of 9,000 series: %v", err)
	}
	if tags, err := run.Tags(1); err != nil || len(tags) != 1 {
		t.Errorf("tags of a series: %v, %v", tags, err)
	}
}
