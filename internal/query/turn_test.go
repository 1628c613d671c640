package query

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// begin starts a query that ends as soon as it has a place, and waits until it
// stands in line. The channel gets the error of the query's start.
func (f *fixture) begin() chan error {
	done := make(chan error, 1)
	waiting := f.Queued()
	go func() {
		run, err := f.Start(context.Background(), Request{})
		if err == nil {
			run.Close(nil)
		}
		done <- err
	}()
	for f.Queued() == waiting && len(done) == 0 {
		time.Sleep(time.Millisecond)
	}
	return done
}

// A query that has had its turn lets a waiting query in, and continues when that has
// had its turn.
func TestYield(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent, config.TotalMemory = 1, 4<<20
	f := newFixture(t, config)
	run, err := f.Start(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := f.begin(), f.begin()
	if run.turn = time.Now(); run.Yield() != nil || len(first) > 0 {
		t.Error("a turn ended as it began")
	}
	run.turn = time.Time{}
	if err := f.pool.acquire(context.Background(), f.pool.max*3/4); err != nil {
		t.Fatal(err)
	}
	f.places.stand(run.id + 1) // as a query that has begun
	if run.Yield() != nil || len(first) > 0 {
		t.Error("others began although memory is short, and one waits for its next turn")
	}
	f.places.begun, run.turn = nil, time.Time{}
	if err := run.Yield(); err != nil { // returns when the first one has had its turn
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if run.outside || f.places.inUse() != 1 || f.Queued() != 1 {
		t.Errorf("outside %v, %d places taken, %d wait", run.outside, f.places.inUse(), f.Queued())
	}
	f.pool.release(f.pool.max * 3 / 4)
	run.Close(nil)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// A query lets others have their turn in each stage of its work, also while it makes
// no output.
func TestYieldInEachStage(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent, config.Workers = 1, 2
	f := newFixture(t, config)
	points := make([]sample, 2*lookEvery)
	for i := range points {
		points[i] = sample{int64(i), i}
	}
	f.put("split", model.MustTags("h", "a"), points...)
	var series []store.Series
	for i := range 2 * lookEvery {
		tags := model.MustTags("h", strconv.Itoa(i))
		series = append(series, store.Series{Series: model.Series{Metric: "m", Tags: tags, Type: model.TypeLong}})
		if i < 100 {
			f.put("read", tags, sample{1, 1})
		}
	}
	sum, long := newStep(t, "sum", Args{"sampling": Sampling{1, Years}}), newStep(t, "percentile", Args{"percentile": .5, "sampling": Sampling{1000, Years}})
	splitting := MetricQuery{Metric: "split", GroupBy: []GroupBy{&ValueGroupBy{Size: 1}}}
	next := func(_ *Run, r *Result) error { _, err := r.Next(); return err }
	for _, tc := range []struct {
		stage  string
		metric MetricQuery
		work   func(*Run, *Result) error
	}{
		{"select", splitting, func(r *Run, _ *Result) error { _, err := r.selectSeries(&splitting, model.AllTime, true); return err }},
		{"plan", splitting, func(r *Run, _ *Result) error {
			_, err := planGroups(r, series, &TagGroupBy{Tags: []string{"h"}}, &lease{budget: &r.budget})
			return err
		}},
		{"sort", splitting, func(r *Run, _ *Result) error { return (&groupPlan{series: series}).sort(r) }},
		{"tags", splitting, func(r *Run, _ *Result) error { _, err := r.tagValues(series); return err }},
		{"names", splitting, func(r *Run, _ *Result) error {
			_, _, err := r.NamesPage(store.NamesQuery{Kind: store.MetricNames, Limit: 1})
			return err
		}},
		{"read", MetricQuery{Metric: "read"}, next},
		{"fold", MetricQuery{Metric: "read", Steps: []Step{sum}}, next},
		{"split", splitting, next},
		{"aggregate", MetricQuery{Metric: "split", Steps: []Step{long}}, func(_ *Run, r *Result) error {
			g, err := r.Next()
			if err == nil {
				_, err = drainPoints(g.Points)
			}
			return err
		}},
	} {
		run, err := f.Start(t.Context(), Request{Range: model.AllTime, Metrics: []MetricQuery{tc.metric}})
		if err != nil {
			t.Fatal(err)
		}
		result, err := run.Metric(0)
		if err != nil {
			t.Fatal(err)
		}
		other := f.begin()
		run.turn = time.Time{}
		if err := tc.work(run, result); err != nil {
			t.Errorf("%s: %v", tc.stage, err)
		}
		if f.lastID.Load() == run.id {
			t.Errorf("%s: no other query had a turn", tc.stage)
		}
		result.Close()
		run.Close(nil)
		if err := <-other; err != nil {
			t.Errorf("%s: %v", tc.stage, err)
		}
		if f.places.inUse() != 0 || f.Queued() != 0 {
			t.Errorf("%s: %d places taken, %d wait", tc.stage, f.places.inUse(), f.Queued())
		}
	}
}

// A query whose client does not read gives its place up, and takes one again when
// the client reads.
func TestAside(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent = 1
	f := newFixture(t, config)
	run, err := f.Start(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	other := f.begin()
	if err := run.Aside(func() error { return <-other }); err != nil {
		t.Fatal(err)
	}
	if run.outside || f.places.inUse() != 1 {
		t.Errorf("outside %v, %d places taken", run.outside, f.places.inUse())
	}
	gone := errors.New("connection reset")
	other = f.begin()
	if err := run.Aside(func() error { <-other; return gone }); err != gone || !run.outside {
		t.Errorf("%v", err)
	}
	run.Close(gone)
	if n := f.places.inUse(); n != 0 {
		t.Errorf("%d places taken by nobody", n)
	}
}

// The end of a query ends its wait for another turn.
func TestWaitForATurnEnds(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent, config.Timeout = 1, 30*time.Millisecond
	f := newFixture(t, config)
	run, err := f.Start(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	var keeps *Run
	err = run.Aside(func() error {
		keeps, err = f.Start(context.Background(), Request{})
		return err
	})
	var limit *store.LimitError
	if !errors.As(err, &limit) || limit.Limit != "query.timeout" {
		t.Errorf("%v", err)
	}
	run.Close(err)
	keeps.Close(nil)
	if n := f.places.inUse() + f.Queued(); n != 0 {
		t.Errorf("%d places are taken or waited for", n)
	}
}
