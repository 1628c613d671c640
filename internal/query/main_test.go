package query

import (
	"context"
	"math"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is an engine over a reference store.
type fixture struct {
	testing.TB
	*Engine
	store *storetest.Reference
}

func newFixture(t testing.TB, config Config) *fixture {
	s := storetest.NewReference(nil)
	t.Cleanup(func() { s.Close() })
	return &fixture{t, New(s, config, prometheus.NewRegistry(), time.Now), s}
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

// output is a group with its points taken out.
type output struct {
	Type   string
	Values [][]string
	Tags   []TagValues
	Points []sample
}

// ask runs a query for one metric over [startMS, endMS].
func (f *fixture) ask(startMS, endMS int64, zone string, m MetricQuery) ([]output, int64, error) {
	f.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		f.Fatal(err)
	}
	run, err := f.Start(context.Background(), Request{
		Range: model.TimeRange{StartMS: startMS, EndMS: endMS}, Zone: loc, Metrics: []MetricQuery{m},
	})
	if err != nil {
		return nil, 0, err
	}
	out, n, err := collect(run)
	run.Close(err)
	if used := run.budget.used.Load(); used != 0 {
		f.Errorf("%d bytes of the budget were not given back", used)
	}
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
		p.setLong(s.ms, int64(v))
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
	env := &Env{
		Range: model.TimeRange{StartMS: startMS, EndMS: endMS}, Zone: time.UTC,
		NowMS: endMS, Metric: "m", lease: &lease{budget: &budget{max: 1 << 30}},
		run: &Run{ctx: context.Background()},
	}
	l := listed(in)
	return drainPoints(s.Apply(env, &l))
}

// counted returns the value of a counter.
func counted(t testing.TB, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}
