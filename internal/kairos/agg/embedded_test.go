package agg

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"varve/internal/embedded"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

func openEmbedded(t testing.TB) *embedded.Store {
	s, err := embedded.Open(vfs.NewMem(), "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fillGauges stores `hosts` x `per` series of metric m, one sample a step.
func fillGauges(t testing.TB, s store.Store, hosts, per, samples int, stepMS int64) {
	var b store.Batch
	b.Reset(s.Epoch())
	flush := func() {
		if err := s.Append(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		b.Reset(s.Epoch())
	}
	for h := range hosts {
		for n := range per {
			ref, err := s.Create(context.Background(), model.Series{
				Metric: "m", Tags: model.MustTags("host", fmt.Sprint("h", h), "n", fmt.Sprint(n)), Type: model.TypeDouble,
			})
			if err != nil {
				t.Fatal(err)
			}
			for i := range samples {
				v := math.Round(1000*math.Sin(float64(i*(n+1))/50)) / 100
				b.AddDouble(ref, int64(i)*stepMS, v, 0)
			}
			if len(b.Samples) > 50_000 {
				flush()
			}
		}
	}
	flush()
}

// The answers of the embedded store are the reference store's, whether points are
// in memory or in files, folded or merged.
func TestEmbeddedEqualsReference(t *testing.T) {
	e := openEmbedded(t)
	f := newFixture(t, query.DefaultConfig())
	for _, s := range []store.Store{e, f.store} {
		fillGauges(t, s, 5, 4, 3000, 7000)
	}
	on := fixtureOver(t, e, query.DefaultConfig())
	check := func(rt *rapid.T) {
		m := drawMetric(rt, t)
		m.Limit = 0
		start := rapid.Int64Range(-100_000, 20_000_000).Draw(rt, "from")
		end := start + rapid.Int64Range(0, 25_000_000).Draw(rt, "length")
		want, n1, err1 := f.ask(start, end, "Europe/Berlin", m)
		got, n2, err2 := on.ask(start, end, "Europe/Berlin", m)
		if n1 != n2 || err1 != nil || err2 != nil {
			rt.Fatalf("reference %d, %v; embedded %d, %v", n1, err1, n2, err2)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{}), cmpopts.EquateApprox(1e-12, 1e-9)); diff != "" {
			rt.Fatalf("reference (-) and embedded (+) differ:\n%s", diff)
		}
	}
	t.Run("head", rapid.MakeCheck(check))
	if err := e.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Run("files", rapid.MakeCheck(check))
	day := MetricQuery{Metric: "m", Steps: []Step{newStep(t, "sum", Args{"sampling": Sampling{1, Days}})}}
	want, _, _ := f.ask(-1, 1e9, "UTC", day)
	got, _, err := on.ask(-1, 1e9, "UTC", day)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{}), cmpopts.EquateApprox(1e-12, 1e-9)); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if n := on.summarized(); n == 0 {
		t.Error("no statistics were used")
	}
}

// Statistics of a head and of files equal those of the samples: an intermediate
// overflow does not show in the result, and -0 is less than 0.
func TestEmbeddedStatisticsOfAwkwardNumbers(t *testing.T) {
	third := 1.0 / 3 // no decimal, so that its chunk is one of doubles
	contents := map[string][]float64{
		"zeros":              {0, 0, 0, minusZero},
		"zeros turned round": {minusZero, minusZero, 0},
		"zeros above":        {-third, 0, minusZero, -third},
		"zeros below":        {third, 0, minusZero, third},
		"overflow":           {0x1p1023, 0x1p1023, -0x1p1023, -0x1p1023},
		"overflow at last":   {0x1p1023, 0, 0, 0},
	}
	e := openEmbedded(t)
	on := fixtureOver(t, e, query.DefaultConfig())
	var b store.Batch
	b.Reset(e.Epoch())
	for metric, values := range contents {
		for host := range 2 {
			ref, err := e.Create(t.Context(), model.Series{Metric: metric, Tags: model.MustTags("h", fmt.Sprint(host)), Type: model.TypeDouble})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 1500 {
				b.AddDouble(ref, int64(i)*1000, values[(i/50+host)%len(values)], 0)
			}
		}
	}
	if err := e.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"head", "files"} {
		for metric := range contents {
			for _, name := range []string{"sum", "avg", "min", "max", "count", "first", "last"} {
				for _, sampling := range []Sampling{{1, Years}, {1, Hours}, {3, Seconds}} {
					m := MetricQuery{Metric: metric, Steps: []Step{newStep(t, name, Args{"sampling": sampling})}}
					on.merging = true
					want, _, err1 := on.ask(0, 1_499_000, "UTC", m)
					on.merging = false
					got, _, err2 := on.ask(0, 1_499_000, "UTC", m)
					if err1 != nil || err2 != nil {
						t.Fatal(err1, err2)
					}
					if diff := cmp.Diff(want, got, equalSamples); diff != "" {
						t.Errorf("%s, %s of %s by %v: merged (-) and folded (+) differ:\n%s", place, name, metric, sampling, diff)
					}
				}
			}
		}
		if err := e.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := on.summarized(); n == 0 {
		t.Error("no statistics were used")
	}
}

// BenchmarkQuery asks the embedded store for 1,000 series of 2,160 samples, in
// files: 2.16 M samples, six hours at ten seconds.
func BenchmarkQuery(b *testing.B) {
	s := openEmbedded(b)
	const series, samples = 1000, 2160
	fillGauges(b, s, 100, series/100, samples, 10_000)
	if err := s.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	engine := newEngine(s, query.DefaultConfig())
	byHost := []GroupBy{&TagGroupBy{Tags: []string{"host"}}}
	for name, m := range map[string]MetricQuery{
		"avg=1m/by=host":  {GroupBy: byHost, Steps: []Step{newStep(b, "avg", Args{"sampling": Sampling{1, Minutes}})}},
		"avg=1h/by=host":  {GroupBy: byHost, Steps: []Step{newStep(b, "avg", Args{"sampling": Sampling{1, Hours}})}},
		"max=1y":          {Steps: []Step{newStep(b, "max", Args{"sampling": Sampling{1, Years}})}},
		"raw/by=host":     {GroupBy: byHost},
		"newest/by=host":  {GroupBy: byHost, Limit: 1, Descending: true},
		"percentile=1h":   {Steps: []Step{newStep(b, "percentile", Args{"sampling": Sampling{1, Hours}, "percentile": 0.9})}},
		"rate(first)=10m": {Steps: []Step{newStep(b, "first", Args{"sampling": Sampling{10, Minutes}}), newStep(b, "rate", nil)}},
	} {
		b.Run(name, func(b *testing.B) {
			m.Metric, m.WithoutTags = "m", true
			b.ReportAllocs()
			for b.Loop() {
				if err := exhaust(engine, m); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(series*samples), "ns/sample")
		})
	}
}

// exhaust runs a query and discards its points.
func exhaust(e *Engine, m MetricQuery) error {
	return exhaustWithin(e, model.TimeRange{StartMS: 0, EndMS: math.MaxInt64}, m)
}

func exhaustWithin(e *Engine, within model.TimeRange, m MetricQuery) error {
	run, err := e.Start(context.Background(), Query{Range: within, Metrics: []MetricQuery{m}})
	if err != nil {
		return err
	}
	defer run.Close(nil)
	result, err := run.Metric(0)
	if err != nil {
		return err
	}
	defer result.Close()
	for {
		g, err := result.Next()
		if err != nil || g == nil {
			return err
		}
		var p Point
		for ok := true; ok; {
			if ok, err = g.Points.Next(&p); err != nil {
				return err
			}
		}
	}
}
