package agg

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"varve/internal/machine"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is an engine over a reference store.
type fixture struct {
	testing.TB
	*Engine
	store    *reference.Store
	config   query.Config
	registry *prometheus.Registry
}

func newFixture(t testing.TB, config query.Config) *fixture {
	s := reference.New(nil)
	t.Cleanup(func() { s.Close() })
	f := fixtureOver(t, s, config)
	f.store = s
	return f
}

// fixtureOver is a fixture over another store, which it cannot put samples into.
func fixtureOver(t testing.TB, s store.Viewer, config query.Config) *fixture {
	registry := prometheus.NewRegistry()
	return &fixture{TB: t, Engine: New(query.New(s, config, registry, time.Now), nil), config: config, registry: registry}
}

func newEngine(s store.Viewer, config query.Config) *Engine {
	return New(query.New(s, config, prometheus.NewRegistry(), time.Now), nil)
}

// summarized is the number of runs that statistics answered.
func (f *fixture) summarized() (n float64) {
	families, err := f.registry.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "varve_query_summarized_runs_total" {
			n = family.Metric[0].Counter.GetValue()
		}
	}
	return n
}

// sample is a time and a value: int is long, float64 double, string text, nil
// null.
type sample struct {
	ms    int64
	value any
}

// put stores samples of one metric and tag set.
func (f *fixture) put(metric string, tags model.Tags, samples ...sample) {
	f.Helper()
	var b store.Batch
	b.Reset(f.store.Epoch())
	ref := func(t model.Type) store.Ref {
		r, err := f.store.Create(context.Background(), model.Series{Metric: metric, Tags: tags, Type: t})
		if err != nil {
			f.Fatal(err)
		}
		return r
	}
	for _, s := range samples {
		switch v := s.value.(type) {
		case int:
			b.AddLong(ref(model.TypeLong), s.ms, int64(v), 0)
		case float64:
			b.AddDouble(ref(model.TypeDouble), s.ms, v, 0)
		case string:
			b.AddBytes(ref(model.TypeString), s.ms, []byte(v), 0)
		case nil:
			b.AddNull(ref(model.TypeNull), s.ms, 0)
		}
	}
	if err := f.store.Append(context.Background(), &b); err != nil {
		f.Fatal(err)
	}
}

// output is a group with its points collected.
type output struct {
	Type   string
	Values [][]string
	Tags   []query.TagValues
	Points []sample
}

// ask runs a query for one metric over [startMS, endMS].
func (f *fixture) ask(startMS, endMS int64, zone string, m MetricQuery) ([]output, int64, error) {
	f.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		f.Fatal(err)
	}
	run, err := f.Start(context.Background(), Query{
		Range: model.TimeRange{StartMS: startMS, EndMS: endMS}, Zone: loc, Metrics: []MetricQuery{m},
	})
	if err != nil {
		return nil, 0, err
	}
	out, n, err := collect(run)
	if !store.IsBusy(err) {
		l, limit, total := run.Lease(), (*store.LimitError)(nil), machine.Share(int64(f.config.TotalMemory))
		if left := l.Take(min(int64(f.config.MaxMemory), total-total/16)); errors.As(left, &limit) {
			f.Errorf("%d bytes of the budget were not given back", limit.Need-limit.Max)
		}
	}
	run.Close(err)
	return out, n, err
}

func collect(run *Run) ([]output, int64, error) {
	result, err := run.Metric(0)
	if err != nil {
		return nil, 0, err
	}
	defer result.Close()
	var all []output
	for {
		g, err := result.Next()
		if err != nil || g == nil {
			return all, result.SampleSize(), err
		}
		o := output{Type: g.Type, Tags: g.Tags}
		for _, l := range g.Labels {
			o.Values = append(o.Values, l.Tags)
		}
		if o.Points, err = drainPoints(g.Points); err != nil {
			return all, 0, err
		}
		all = append(all, o)
	}
}

func drainPoints(s Stream) ([]sample, error) {
	var points []sample
	for {
		var p Point
		ok, err := s.Next(&p)
		if !ok || err != nil {
			return points, err
		}
		points = append(points, sample{p.TimeMS, valueOf(&p)})
	}
}

func valueOf(p *Point) any {
	switch p.Kind {
	case model.Long:
		return int(int64(p.Bits))
	case model.Double:
		return math.Float64frombits(p.Bits)
	case model.Null:
		return nil
	}
	return string(p.Data)
}

// listed is a Stream over samples.
type listed []sample

func (l *listed) Next(p *Point) (bool, error) {
	if len(*l) == 0 {
		return false, nil
	}
	s := (*l)[0]
	*l = (*l)[1:]
	switch v := s.value.(type) {
	case int:
		*p = Point{TimeMS: s.ms, Kind: model.Long, Bits: uint64(int64(v))}
	case float64:
		p.setDouble(s.ms, v)
	case string:
		*p = Point{TimeMS: s.ms, Kind: model.String, Data: []byte(v)}
	case nil:
		*p = Point{TimeMS: s.ms, Kind: model.Null}
	}
	return true, nil
}

// newStep builds a step by name.
func newStep(t testing.TB, name string, args Args) Step {
	t.Helper()
	for _, spec := range Aggregators() {
		if spec.Name == name {
			s, err := spec.New(args)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	t.Fatalf("no aggregator %s", name)
	return nil
}

// apply runs a step over samples in a query of the given range, in UTC.
func apply(t testing.TB, s Step, startMS, endMS int64, in ...sample) ([]sample, error) {
	run, err := newFixture(t, query.DefaultConfig()).Start(context.Background(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	l := run.Lease()
	env := &Env{
		Range: model.TimeRange{StartMS: startMS, EndMS: endMS}, Zone: time.UTC,
		NowMS: endMS, Metric: "m", lease: &l, run: run,
	}
	points := listed(in)
	return drainPoints(s.Apply(env, &points))
}
