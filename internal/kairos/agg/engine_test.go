package agg

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

func TestGroupsAndOrder(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	f.put("m", model.MustTags("h", "b"), sample{1, 1}, sample{2, "x"})
	f.put("m", model.MustTags("h", "a"), sample{3, 2.5}, sample{1, 0.5})
	f.put("m", model.MustTags("q", "1"), sample{1, 9})
	f.put("m", model.MustTags("h", "c"), sample{500, 9}) // outside the range
	byTag := []GroupBy{&TagGroupBy{Tags: []string{"h"}}}
	h := func(v ...string) []query.TagValues { return []query.TagValues{{Name: "h", Values: v}} }
	tests := []struct {
		name string
		m    MetricQuery
		n    int64
		want []output
	}{
		{"all", MetricQuery{}, 5, []output{
			{Type: "number", Tags: append(h("a", "b"), query.TagValues{Name: "q", Values: []string{"1"}}),
				Points: []sample{{1, 0.5}, {1, 1}, {1, 9}, {3, 2.5}}},
			{Type: "text", Tags: h("b"), Points: []sample{{2, "x"}}},
		}},
		{"by tag", MetricQuery{GroupBy: byTag}, 5, []output{
			{Type: "number", Values: [][]string{{""}}, Tags: []query.TagValues{{Name: "q", Values: []string{"1"}}}, Points: []sample{{1, 9}}},
			{Type: "number", Values: [][]string{{"a"}}, Tags: h("a"), Points: []sample{{1, 0.5}, {3, 2.5}}},
			{Type: "number", Values: [][]string{{"b"}}, Tags: h("b"), Points: []sample{{1, 1}}},
			{Type: "text", Values: [][]string{{"b"}}, Tags: h("b"), Points: []sample{{2, "x"}}},
		}},
		{"by one tag twice", MetricQuery{GroupBy: []GroupBy{&TagGroupBy{Tags: []string{"q", "q"}}}, WithoutTags: true,
			Matchers: []model.Matcher{{Tag: "q", Values: []string{"1"}}}}, 1, []output{
			{Type: "number", Values: [][]string{{"1", "1"}}, Points: []sample{{1, 9}}},
		}},
		{"newest", MetricQuery{Descending: true, Limit: 1, WithoutTags: true}, 4, []output{
			{Type: "number", Points: []sample{{3, 2.5}}},
			{Type: "text", Points: []sample{{2, "x"}}},
		}},
		{"filtered", MetricQuery{Matchers: []model.Matcher{{Tag: "h", Values: []string{"a", "zz"}}}}, 2, []output{
			{Type: "number", Tags: h("a"), Points: []sample{{1, 0.5}, {3, 2.5}}},
		}},
		{"nothing", MetricQuery{Matchers: []model.Matcher{{Tag: "h", Values: []string{"c"}}}}, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.m.Metric = "m"
			got, n, err := f.ask(0, 100, "UTC", tt.m)
			if err != nil || n != tt.n {
				t.Errorf("%d samples, %v", n, err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(sample{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// limit 1, newest first, reads one block of each series.
func TestNewestReadsOneBlock(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	f.store.BlockSamples = 10
	for h := range 20 {
		var samples []sample
		for i := range 1000 {
			samples = append(samples, sample{int64(i), i})
		}
		f.put("m", model.MustTags("h", fmt.Sprint(h)), samples...)
	}
	_, n, err := f.ask(0, 1e6, "UTC", MetricQuery{Metric: "m", Limit: 1, Descending: true})
	if err != nil || n != 20 {
		t.Errorf("%d samples, %v", n, err)
	}
}

func TestLimits(t *testing.T) {
	tests := []struct {
		limit  string
		change func(*query.Config)
		m      MetricQuery
	}{
		{"query.max_series", func(c *query.Config) { c.MaxSeries = 9 }, MetricQuery{}},
		{"query.max_samples", func(c *query.Config) { c.MaxSamples = 999 }, MetricQuery{}},
		{"query.max_samples", func(c *query.Config) { c.MaxSamples = 999 }, MetricQuery{Steps: []Step{newStep(t, "sum", Args{"sampling": Sampling{1, Hours}})}}},
		{"query.max_memory", func(c *query.Config) { c.MaxMemory = 5000 }, MetricQuery{}},
		{"query.max_memory", func(c *query.Config) { c.MaxMemory = 5000 }, MetricQuery{Steps: []Step{newStep(t, "sum", nil)}}},
		{"query.max_memory", func(c *query.Config) { c.MaxMemory = 20000 }, MetricQuery{Descending: true, Limit: 1000, Steps: []Step{newStep(t, "sum", nil)}}},
	}
	for _, tt := range tests {
		config := query.DefaultConfig()
		tt.change(&config)
		f := newFixture(t, config)
		for h := range 10 {
			var samples []sample
			for i := range 100 {
				samples = append(samples, sample{int64(i), i})
			}
			f.put("m", model.MustTags("h", fmt.Sprint(h)), samples...)
		}
		tt.m.Metric = "m"
		_, _, err := f.ask(0, 1e6, "UTC", tt.m)
		var limit *store.LimitError
		if !errors.As(err, &limit) || limit.Limit != tt.limit {
			t.Errorf("%s: %v", tt.limit, err)
		}
		if limit != nil && limit.Need <= limit.Max {
			t.Errorf("%s: need %d of %d", tt.limit, limit.Need, limit.Max)
		}
	}
}

// A cancelled query stops at once, at any stage: after few points, however long a busy
// machine takes for them.
func TestCancelStops(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	var samples []sample
	for i := range 200_000 {
		samples = append(samples, sample{int64(i), i})
	}
	f.put("m", model.MustTags("h", "a"), samples...)
	for name, end := range map[string]func(run *Run, leave context.CancelFunc){
		"operator": func(run *Run, _ context.CancelFunc) { f.Cancel(f.Running()[0].ID) },
		"client":   func(_ *Run, leave context.CancelFunc) { leave() },
	} {
		ctx, leave := context.WithCancel(context.Background())
		run, err := f.Start(ctx, Query{
			Request: query.Request{Text: "{}", Client: "me"}, Range: model.AllTime, Metrics: []MetricQuery{{Metric: "m"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		result, err := run.Metric(0)
		if err != nil {
			t.Fatal(err)
		}
		g, err := result.Next()
		if err != nil {
			t.Fatal(err)
		}
		if list := f.Running(); len(list) != 1 || list[0].Text != "{}" || list[0].Samples == 0 || list[0].Series != 1 {
			t.Errorf("%+v", list)
		}
		end(run, leave)
		points, err := drainPoints(g.Points)
		if len(points) > len(samples)/10 || !(errors.Is(err, query.ErrCancelled) || errors.Is(err, context.Canceled)) {
			t.Errorf("%s: %v after %d points", name, err, len(points))
		}
		result.Close()
		run.Close(err)
		leave()
	}
	if len(f.Running()) != 0 || f.Cancel(1) {
		t.Error("still running")
	}
}

// A query that buffers endless nulls to reverse them ends when it is cancelled.
func TestCancelWhileBuffering(t *testing.T) {
	config := query.DefaultConfig()
	config.MaxSamples = math.MaxInt64 // else so many gaps are refused at once
	f := newFixture(t, config)
	gaps := MetricQuery{Metric: "m", Descending: true, Steps: []Step{newStep(t, "gaps", nil)}}
	run, err := f.Start(context.Background(), Query{Range: model.TimeRange{StartMS: 0, EndMS: 1e15}, Metrics: []MetricQuery{gaps}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	result, err := run.Metric(0)
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	g, err := result.Next()
	if err != nil {
		t.Fatal(err)
	}
	id := f.Running()[0].ID // the timer may come when it is over
	stopped := time.AfterFunc(20*time.Millisecond, func() { f.Cancel(id) })
	defer stopped.Stop()
	var p Point
	if _, err := g.Points.Next(&p); !errors.Is(err, query.ErrCancelled) { // else query.max_memory ends it
		t.Error(err)
	}
}

// Statistics are used if a bucket covers a run.
func TestStatisticsAreUsed(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	var samples []sample
	for i := range 1000 {
		samples = append(samples, sample{int64(i) * 1000, i})
	}
	f.put("m", model.MustTags("h", "a"), samples...)
	got, n, err := f.ask(0, 1e6, "UTC", MetricQuery{Metric: "m", Steps: []Step{newStep(t, "sum", Args{"sampling": Sampling{1, Days}})}})
	if err != nil || n != 1000 || len(got) != 1 || got[0].Points[0].value != 499500.0 {
		t.Errorf("%v, %d, %v", got, n, err)
	}
	if runs := f.summarized(); runs == 0 {
		t.Error("no run was summarized")
	}
}
