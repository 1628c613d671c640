package agg

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded"
	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
)

const stagedMS = 1_700_006_400_000 // when stages are looked at: the beginning of a day

// A stagedStore keeps samples for an hour, minutes for six hours, then hours.
type stagedStore struct {
	*testing.T
	*embedded.Store
	on      *fixture
	samples map[int64][]float64 // of all series, by hour
}

func openStaged(t *testing.T, change func(*retention.PolicyConfig)) *stagedStore {
	t.Helper()
	var p retention.PolicyConfig
	p.SetDefaults()
	p.Name, p.Stages = "all", "10s:1h,60s:6h,1h:1y"
	change(&p)
	rules, err := retention.Config{Policies: []retention.PolicyConfig{p}}.Rules()
	if err != nil {
		t.Fatal(err)
	}
	c := embedded.DefaultConfig()
	c.LateHold = 0 // folds do not wait after the start
	s, err := embedded.Open(vfs.NewMem(), "data", c, embedded.Options{
		Book: retention.NewShelf(&retention.Book{Rules: rules}), Now: func() time.Time { return time.UnixMilli(stagedMS) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &stagedStore{T: t, Store: s, on: fixtureOver(t, s, query.DefaultConfig()), samples: map[int64][]float64{}}
}

// write stores n samples of a host from a time on, stepMS apart.
func (s *stagedStore) write(host string, fromMS, stepMS int64, n int, value func(i int) float64) {
	s.Helper()
	ref, err := s.Create(context.Background(), model.Series{Metric: "m", Tags: model.MustTags("host", host), Type: model.TypeDouble})
	if err != nil {
		s.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.Epoch())
	for i := range n {
		ms := fromMS + int64(i)*stepMS
		b.AddDouble(ref, ms, value(i), 0)
		s.samples[ms/hourMS] = append(s.samples[ms/hourMS], value(i))
	}
	if err := s.Append(context.Background(), &b); err != nil {
		s.Fatal(err)
	}
}

// fold downsamples everything that is old enough.
func (s *stagedStore) fold() {
	s.Helper()
	if err := s.Compact(context.Background()); err != nil {
		s.Fatal(err)
	}
}

// check compares percentiles of so many hours with those of the samples.
func (s *stagedStore) check(when string, hours int64, change func(*MetricQuery)) {
	s.Helper()
	for _, p := range []float64{0.001, 0.25, 0.5, 0.9, 0.99, 1} {
		m := MetricQuery{Metric: "m", Steps: []Step{newStep(s, "percentile", Args{"percentile": p, "sampling": Sampling{hours, Hours}, "align_start_time": true})}}
		if change != nil {
			change(&m)
		}
		got, _, err := s.on.ask(stagedMS-48*hourMS, stagedMS-1, "UTC", m)
		if err != nil || len(got) != 1 || int64(len(got[0].Points)) != 48/hours {
			s.Fatalf("%s: %v, %v", when, got, err)
		}
		for _, point := range got[0].Points {
			var all []float64
			for h := range hours {
				all = append(all, s.samples[point.ms/hourMS+h]...)
			}
			slices.Sort(all)
			want := percentileOf(all, p)
			if v := point.value.(float64); math.Abs(v-want) > quantile.RelativeError*want {
				s.Fatalf("%s: percentile %v of %d hours from %d on: %v, want %v", when, p, hours, point.ms, v, want)
			}
		}
	}
}

// TestPercentilesOfStages queries percentiles over hours of samples, of minutes and of
// hours, before and after folding, with late samples.
func TestPercentilesOfStages(t *testing.T) {
	for name, change := range map[string]func(*retention.PolicyConfig){
		"sketch": func(p *retention.PolicyConfig) { p.Sketch = true },
		"p95":    func(p *retention.PolicyConfig) { p.Aggregation = "p95" },
	} {
		t.Run(name, func(t *testing.T) {
			s := openStaged(t, change)
			r := rand.New(rand.NewPCG(1, 1))
			for host := range 3 {
				values := make([]float64, 48*360)
				for i := range values {
					values[i] = math.Exp(float64(host) + r.NormFloat64()/2)
				}
				s.write(fmt.Sprint(host), stagedMS-48*hourMS, 10_000, len(values), func(i int) float64 { return values[i] })
			}
			s.check("in memory", 1, nil)
			s.fold()
			for _, hours := range []int64{1, 6, 48} {
				s.check("folded", hours, nil)
				s.check("folded, descending", hours, func(m *MetricQuery) { m.Descending = true })
			}
			s.write("0", stagedMS-30*hourMS+5_000, 60_000, 100, func(i int) float64 { return float64(100 + i) })
			s.write("late", stagedMS-5*hourMS+5_000, 60_000, 100, func(i int) float64 { return float64(100 + i) })
			s.check("with late samples", 6, nil)
			s.fold()
			s.check("with late samples, folded", 1, nil)
		})
	}
}

// TestLastOfStages: the last value of an hour is that of its last sample, although a bucket that
// counts it is shown at its beginning: beside late samples that came before it, beside a series that
// ended earlier and is not folded, and if the last sample was sent again with another value.
func TestLastOfStages(t *testing.T) {
	const hour = stagedMS - 20*hourMS // of the stage of hours
	s := openStaged(t, func(*retention.PolicyConfig) {})
	at := func(minute int64) int64 { return hour + minute*60_000 }
	check := func(when string, want float64) {
		t.Helper()
		for _, descending := range []bool{false, true} {
			for _, aligned := range []bool{true, false} {
				m := MetricQuery{Metric: "m", Descending: descending, Steps: []Step{newStep(s, "last", Args{"sampling": Sampling{1, Hours}, "align_start_time": aligned})}}
				got, _, err := s.on.ask(hour, hour+hourMS-1, "UTC", m)
				if err != nil || len(got) != 1 || len(got[0].Points) != 1 || got[0].Points[0].value != want {
					t.Errorf("%s, descending %t, aligned %t: %v, %v, want %v", when, descending, aligned, got, err, want)
				} else if ms := got[0].Points[0].ms; aligned && ms != hour || !aligned && ms != at(40) {
					t.Errorf("%s, descending %t, aligned %t: the time is %d", when, descending, aligned, ms)
				}
			}
		}
	}
	s.write("a", at(10), 30*60_000, 2, func(i int) float64 { return float64(1 + i) }) // 1, and 2 at 40 minutes
	s.fold()
	check("folded", 2)
	s.write("a", at(20), 60_000, 3, func(int) float64 { return 9 })
	check("with late samples", 2)
	s.write("b", at(30), 60_000, 3, func(int) float64 { return 8 })
	check("with another series", 2)
	s.fold()
	check("folded again", 2)
	s.write("a", at(40), 1, 1, func(int) float64 { return -5 })
	check("with the last sample sent again", -5)
}

// TestFoldsOfStages: count, sum, avg, min, max and last of stages are the same with a limit that is not
// reached, with groups by time, and for an incomplete answer, which read samples in order of time.
func TestFoldsOfStages(t *testing.T) {
	s := openStaged(t, func(*retention.PolicyConfig) {})
	r := rand.New(rand.NewPCG(7, 7))
	for host := range 3 {
		s.write(fmt.Sprint(host), stagedMS-48*hourMS, 10_000, 48*360, func(int) float64 { return float64(r.IntN(1000)) })
	}
	s.fold()
	s.write("0", stagedMS-30*hourMS+5_000, 60_000, 100, func(i int) float64 { return float64(100 + i) })
	s.write("late", stagedMS-5*hourMS+5_000, 60_000, 100, func(i int) float64 { return float64(100 + i) })
	same := func(a, b sample) bool { // but for the rounding of sums
		x, isDouble := a.value.(float64)
		y, _ := b.value.(float64)
		return a.ms == b.ms && (a.value == b.value || isDouble && math.Abs(x-y) < 1e-12*math.Abs(x))
	}
	for _, name := range []string{"count", "sum", "avg", "min", "max", "last", "first"} {
		for _, sampling := range []Sampling{{1, Minutes}, {40, Minutes}, {1, Hours}, {6, Hours}, {1, Days}, {1, Months}} {
			for _, aligned := range []bool{true, false} {
				ask := func(change func(*MetricQuery)) (points []sample) {
					m := MetricQuery{Metric: "m", Steps: []Step{newStep(t, name, Args{"sampling": sampling, "align_start_time": aligned})}}
					change(&m)
					got, _, err := s.on.ask(stagedMS-48*hourMS, stagedMS-1, "UTC", m)
					if err != nil {
						t.Fatal(err)
					}
					for _, g := range got {
						points = append(points, g.Points...)
					}
					slices.SortFunc(points, func(a, b sample) int { return int(a.ms - b.ms) })
					return points
				}
				want := ask(func(*MetricQuery) {})
				for how, change := range map[string]func(*MetricQuery){
					"limit":             func(m *MetricQuery) { m.Limit = 1_000_000 },
					"limit, descending": func(m *MetricQuery) { m.Limit, m.Descending = 1_000_000, true },
					"a group a month":   func(m *MetricQuery) { m.GroupBy = []GroupBy{&TimeGroupBy{Size: Sampling{1, Months}, Count: 2}} },
					"two groups":        func(m *MetricQuery) { m.GroupBy = []GroupBy{&TimeGroupBy{Size: Sampling{1, Days}, Count: 2}} },
					"six groups": func(m *MetricQuery) {
						m.GroupBy, m.Descending = []GroupBy{&TimeGroupBy{Size: Sampling{6, Hours}, Count: 3}, &TimeGroupBy{Size: Sampling{1, Days}, Count: 2}}, true
					},
					"in order of time": func(*MetricQuery) { s.on.merging = true },
				} {
					if sampling.Unit == Months && how == "two groups" || how == "six groups" && (sampling.Unit >= Days || sampling.Value == 40) {
						continue // a result of the plain query has samples of several groups
					}
					got := ask(change)
					s.on.merging = false
					if !slices.EqualFunc(got, want, same) {
						t.Errorf("%s of %v, aligned %t, %s: %d results, want %d, the first ones %v and %v", name, sampling, aligned, how, len(got), len(want), got[:1], want[:1])
					}
				}
			}
		}
	}
	m := MetricQuery{Metric: "m", GroupBy: []GroupBy{&TimeGroupBy{Size: Sampling{40, Minutes}, Count: 2}}, Steps: []Step{newStep(t, "count", Args{"sampling": Sampling{1, Days}, "align_start_time": true})}}
	got, _, err := s.on.ask(stagedMS-48*hourMS, stagedMS-47*hourMS-1, "UTC", m)
	if err != nil || len(got) != 1 || fmt.Sprint(got[0].Points[0].value) != "3" {
		t.Errorf("groups that cut buckets: %v, %v, want the values of three buckets", got, err)
	}
}

// TestPercentilesWithoutSketches: percentiles are of the values of buckets if another
// step has changed the points, and for groups by value.
func TestPercentilesWithoutSketches(t *testing.T) {
	value := func(i int) float64 { return float64(1 + i%60) }
	percentile := func(s *stagedStore) Step {
		return newStep(s, "percentile", Args{"percentile": 1.0, "sampling": Sampling{1, Hours}, "align_start_time": true})
	}
	highest := func(s *stagedStore, m MetricQuery) float64 {
		s.Helper()
		got, _, err := s.on.ask(stagedMS-48*hourMS, stagedMS-47*hourMS-1, "UTC", m)
		if err != nil || len(got) == 0 || len(got[0].Points) != 1 {
			s.Fatalf("%v, %v", got, err)
		}
		return got[0].Points[0].value.(float64)
	}
	for _, sketch := range []bool{false, true} {
		s := openStaged(t, func(p *retention.PolicyConfig) { p.Sketch = sketch })
		s.write("a", stagedMS-48*hourMS, 10_000, 48*360, value)
		s.fold()
		want := 30.5
		if sketch {
			want = 60
		}
		if got := highest(s, MetricQuery{Metric: "m", Steps: []Step{percentile(s)}}); got != want {
			t.Errorf("sketches %t: %v, want %v", sketch, got, want)
		}
		scale := newStep(s, "scale", Args{"factor": 2.0})
		if got := highest(s, MetricQuery{Metric: "m", Steps: []Step{scale, percentile(s)}}); got != 61 {
			t.Errorf("sketches %t, of points that were scaled: %v, want 61", sketch, got)
		}
	}
}

// A tally counts what a delete deletes: buckets that lie entirely in the range, and samples beside them.
func TestTallyOfBuckets(t *testing.T) {
	const hour = stagedMS - 20*hourMS // of the stage of hours
	s := openStaged(t, func(*retention.PolicyConfig) {})
	s.write("a", hour, 60_000, 120, func(i int) float64 { return float64(i) }) // two hours
	s.write("b", hour, 60_000, 30, func(i int) float64 { return float64(i) })
	s.fold()
	s.write("a", hour+hourMS, 60_000, 3, func(i int) float64 { return float64(i) }) // late, from the start of a bucket on
	tally := func(r model.TimeRange) query.Tally {
		run, err := s.on.Start(t.Context(), Query{Range: r, Metrics: []MetricQuery{{Metric: "m"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close(nil)
		n, err := run.Tally(store.Selection{Metric: "m", Range: r})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		r    model.TimeRange
		want query.Tally
	}{
		{model.AllTime, query.Tally{Series: 2, Samples: 153}},
		{model.TimeRange{StartMS: hour, EndMS: hour + hourMS - 1}, query.Tally{Series: 2, Samples: 90}},
		{model.TimeRange{StartMS: hour, EndMS: hour + hourMS - 2}, query.Tally{}},
		{model.TimeRange{StartMS: hour, EndMS: hour + hourMS + 60_000}, query.Tally{Series: 2, Samples: 92}},
		{model.TimeRange{StartMS: hour + 1, EndMS: hour + 2*hourMS}, query.Tally{Series: 1, Samples: 63}},
	} {
		if got := tally(c.r); got != c.want {
			t.Errorf("from %d to %d ms after the hour: %+v, want %+v", c.r.StartMS-hour, c.r.EndMS-hour, got, c.want)
		}
	}
}

// A bucket whose sum does not fit a double counts all of its samples, as the buckets after it do.
func TestSumOfStagesBeyondDoubles(t *testing.T) {
	s := openStaged(t, func(*retention.PolicyConfig) {})
	const hours, infinite = 4, 1 // the hour of the two great values
	s.write("a", stagedMS-24*hourMS, 10_000, hours*360, func(i int) float64 {
		if i == infinite*360 || i == infinite*360+1 {
			return math.MaxFloat64
		}
		return 1
	})
	s.fold()
	for name, want := range map[string]float64{"sum": 360, "avg": 1} {
		m := MetricQuery{Metric: "m", Steps: []Step{newStep(t, name, Args{"sampling": Sampling{1, Hours}, "align_start_time": true})}}
		got, _, err := s.on.ask(stagedMS-24*hourMS, stagedMS-1, "UTC", m)
		if err != nil || len(got) != 1 || len(got[0].Points) != hours {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		for i, p := range got[0].Points {
			if v := p.value.(float64); i != infinite && v != want || i == infinite && !math.IsInf(v, 1) {
				t.Errorf("%s of hour %d: %v, want %v, and infinity in hour %d", name, i, v, want, infinite)
			}
		}
	}
}

// A bucket counts as one sample that a query reads, whichever way it is read.
func TestSamplesReadOfStages(t *testing.T) {
	s := openStaged(t, func(*retention.PolicyConfig) {})
	const hours = 24
	s.write("a", stagedMS-48*hourMS, 10_000, hours*360, func(i int) float64 { return float64(i) })
	s.fold()
	c := query.DefaultConfig()
	c.MaxSamples = hours
	f := fixtureOver(t, s, c)
	for how, m := range map[string]MetricQuery{
		"plain":             {},
		"aggregated":        {Steps: []Step{newStep(t, "sum", Args{"sampling": Sampling{1, Days}})}},
		"aggregated, limit": {Steps: []Step{newStep(t, "sum", Args{"sampling": Sampling{1, Days}})}, Limit: 1_000_000},
	} {
		m.Metric = "m"
		if _, n, err := f.ask(stagedMS-48*hourMS, stagedMS-1, "UTC", m); err != nil || n != hours {
			t.Errorf("%s: %d samples, %v, want %d buckets", how, n, err, hours)
		}
	}
}
