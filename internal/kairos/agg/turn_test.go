package agg

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// A query lets others have their turn in each stage of its work, even while it has no
// output.
func TestYieldInEachStage(t *testing.T) { synctest.Test(t, testYieldInEachStage) }

func testYieldInEachStage(t *testing.T) {
	const looks = 1 << 14 // the work between two looks at others, see query.Session.Tick
	config := query.DefaultConfig()
	config.MaxConcurrent, config.Workers = 1, 2
	f := newFixture(t, config)
	points := make([]sample, 2*looks)
	for i := range points {
		points[i] = sample{int64(i), i}
	}
	f.put("split", model.MustTags("h", "a"), points...)
	var series []store.Series
	for i := range 2 * looks {
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
		{"plan", splitting, func(r *Run, _ *Result) error {
			l := r.Lease()
			var list query.List
			for _, one := range series {
				if err := list.Add(one, &l); err != nil {
					return err
				}
			}
			_, err := planGroups(r.Session, &list, &TagGroupBy{Tags: []string{"h"}}, &l)
			return err
		}},
		{"sort", splitting, func(r *Run, _ *Result) error { return (&groupPlan{series: series}).sort(r.Session) }},
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
		run, err := f.Start(t.Context(), Query{Range: model.AllTime, Metrics: []MetricQuery{tc.metric}})
		if err != nil {
			t.Fatal(err)
		}
		result, err := run.Metric(0)
		if err != nil {
			t.Fatal(err)
		}
		other := make(chan error, 1)
		go func() {
			run, err := f.Start(t.Context(), Query{})
			if err == nil {
				run.Close(nil)
			}
			other <- err
		}()
		synctest.Wait() // until the other stands in line, and is not merely counted
		for !run.Due() {
			time.Sleep(time.Millisecond)
		}
		if err := tc.work(run, result); err != nil {
			t.Errorf("%s: %v", tc.stage, err)
		}
		if f.Queued() != 0 {
			t.Errorf("%s: no other query had a turn", tc.stage)
		}
		result.Close()
		run.Close(nil)
		if err := <-other; err != nil {
			t.Errorf("%s: %v", tc.stage, err)
		}
	}
}
