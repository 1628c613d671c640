package agg

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/units"
)

// A countedStep counts the groups that it is applied to.
type countedStep struct {
	anyType
	applied *int
}

func (s countedStep) Apply(_ *Env, in Stream) Stream {
	*s.applied++
	return in
}

// putParts stores n points of a metric, each with its own value.
func (f *fixture) putParts(n int) {
	var samples []sample
	for i := range n {
		samples = append(samples, sample{int64(i), i})
	}
	f.put("m", model.MustTags("h", "a"), samples...)
}

// each is a group-by that makes a part of each of them.
func each(t testing.TB) []GroupBy {
	return []GroupBy{newGroupBy(t, "value", Args{"range_size": int64(1)})}
}

func (f *fixture) result(m MetricQuery) (*Run, *Result) {
	run, err := f.Start(f.Context(), Query{Range: model.AllTime, Metrics: []MetricQuery{m}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { run.Close(nil) })
	result, err := run.Metric(0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(result.Close)
	return run, result
}

// The steps of a part are applied when the part is returned, and not to all parts at
// once.
func TestPartsAreBuiltOneByOne(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	f.putParts(1000)
	applied := 0
	_, result := f.result(MetricQuery{Metric: "m", GroupBy: each(t), Steps: []Step{countedStep{applied: &applied}}})
	for want := 1; want <= 1000; want++ {
		g, err := result.Next()
		if err != nil || g == nil {
			t.Fatal(g, err)
		}
		if applied != want {
			t.Fatalf("after part %d, steps are applied to %d", want, applied)
		}
		if points, err := drainPoints(g.Points); err != nil || !cmp.Equal(points, []sample{{int64(want - 1), want - 1}}, cmp.AllowUnexported(sample{})) {
			t.Fatalf("part %d: %v, %v", want, points, err)
		}
	}
	if g, err := result.Next(); g != nil || err != nil {
		t.Error(g, err)
	}
}

// A query of many parts ends soon after its client has left, even if its steps remove
// all points of a part.
func TestPartsEndWithTheQuery(t *testing.T) {
	applied := 0
	none := []Step{countedStep{applied: &applied}}
	for range 199 {
		none = append(none, newStep(t, "diff", nil)) // one point has no difference
	}
	for name, steps := range map[string][]Step{
		"as they are":      {countedStep{applied: &applied}},
		"aggregated":       {countedStep{applied: &applied}, newStep(t, "sum", nil)},
		"nothing of them":  none,
		"empty buckets":    {countedStep{applied: &applied}, newStep(t, "gaps", Args{"trim": true})},
		"in another order": {countedStep{applied: &applied}, newStep(t, "sma", Args{"size": int64(5)}), newStep(t, "sum", nil)},
	} {
		for _, descending := range []bool{false, true} {
			f := newFixture(t, query.DefaultConfig())
			f.putParts(20_000)
			_, result := f.result(MetricQuery{Metric: "m", GroupBy: each(t), Steps: steps, Descending: descending})
			applied = 0
			var err error
			for g := (*Group)(nil); err == nil; {
				if g, err = result.Next(); err != nil || g == nil {
					break
				}
				if applied == 10 {
					f.Cancel(f.Running()[0].ID)
				}
				_, err = drainPoints(g.Points)
			}
			if !errors.Is(err, query.ErrCancelled) || applied > 10+1<<14/len(steps) {
				t.Errorf("%s, descending %v: ended with %v after %d parts", name, descending, err, applied)
			}
		}
	}
}

// The memory of a part's steps is released before the next part is built.
func TestPartsGiveMemoryBack(t *testing.T) {
	config := query.DefaultConfig()
	config.MaxMemory = 16 * units.MiB
	f := newFixture(t, config)
	f.saver = forgetful{}
	f.putParts(2000)
	m := MetricQuery{Metric: "m", GroupBy: each(t), Steps: []Step{newStep(t, "save_as", Args{"metric_name": "copy"})}}
	if groups, _, err := f.ask(0, 2000, "UTC", m); err != nil || len(groups) != 2000 {
		t.Errorf("%d groups, %v", len(groups), err)
	}
}
