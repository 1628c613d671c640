//go:build unix

package agg

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"varve/internal/embedded"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// cpuTime is the CPU time of the process so far. On a busy machine it says more than
// elapsed time.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs f, which answers about n units, and reports how many units a core
// processes per second.
func measure(b *testing.B, f func() error, n int, unit string) {
	b.ReportAllocs()
	began := cpuTime(b)
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/1e6/(cpuTime(b)-began).Seconds(), "M"+unit+"/core-s")
}

// fillDense stores 100 series of metric m, a sample a second for two days: of
// each 20 ten gauges of two decimals, seven counters, three constants. n is one
// tag, so that each group of a group-by over it has one kind of values.
func fillDense(b *testing.B, s *embedded.Store) (samples int) {
	const series, steps = 100, 172_800
	rng := rand.New(rand.NewPCG(1, 2))
	var batch store.Batch
	for i := range series {
		kind := model.TypeDouble
		if i%20 >= 10 {
			kind = model.TypeLong
		}
		ref, err := s.Create(context.Background(), model.Series{
			Metric: "m", Tags: model.MustTags("host", fmt.Sprint("h", i/20), "n", fmt.Sprint(i%20)), Type: kind,
		})
		if err != nil {
			b.Fatal(err)
		}
		v := float64(rng.IntN(10_000)) / 100
		batch.Reset(s.Epoch())
		for at := range steps {
			ms := int64(at) * 1000
			switch n := i % 20; {
			case n < 10:
				v = math.Round((v+rng.Float64()-0.5)*100) / 100
				batch.AddDouble(ref, ms, v, 0)
			case n < 17:
				v += float64(rng.IntN(100))
				batch.AddLong(ref, ms, int64(v), 0)
			default:
				batch.AddLong(ref, ms, int64(v), 0)
			}
		}
		if err := s.Append(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	return series * steps
}

// BenchmarkDense asks for aggregates of 17.28 M samples in files: two days of 100
// series, one a second.
func BenchmarkDense(b *testing.B) {
	s := openEmbedded(b)
	samples := fillDense(b, s)
	engine := newEngine(s, query.DefaultConfig())
	minute, hour := Args{"sampling": Sampling{1, Minutes}}, Args{"sampling": Sampling{1, Hours}}
	each := []GroupBy{&TagGroupBy{Tags: []string{"host", "n"}}}
	for _, c := range []struct {
		name string
		by   []GroupBy
		step Step
	}{
		{"avg=1m/groups=1", nil, newStep(b, "avg", minute)},
		{"max=1m/groups=1", nil, newStep(b, "max", minute)},
		{"count=1m/groups=1", nil, newStep(b, "count", minute)},
		{"first=1m/groups=1", nil, newStep(b, "first", minute)},
		{"avg=1h/groups=1", nil, newStep(b, "avg", hour)},
		{"avg=1m/groups=100", each, newStep(b, "avg", minute)},
		{"dev=1m/groups=100", each, newStep(b, "dev", minute)},
		{"percentile=1m/groups=100", each, newStep(b, "percentile", Args{"sampling": minute["sampling"], "percentile": 0.9})},
		{"rate/groups=100", each, newStep(b, "rate", nil)},
		{"dev=1m/groups=1", nil, newStep(b, "dev", minute)},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := MetricQuery{Metric: "m", GroupBy: c.by, Steps: []Step{c.step}}
			measure(b, func() error { return exhaust(engine, m) }, samples, "points")
		})
	}
}

// fillWide stores 20 samples, ten seconds apart, of each of 200,000 series of
// metric m: 10,000 hosts by 20 modes, six tags.
func fillWide(b *testing.B, s *embedded.Store) (series int) {
	const hosts, modes, samples = 10_000, 20, 20
	var batch store.Batch
	for h := range hosts {
		batch.Reset(s.Epoch())
		for m := range modes {
			ref, err := s.Create(context.Background(), model.Series{Metric: "m", Type: model.TypeDouble, Tags: model.MustTags(
				"dc", fmt.Sprintf("dc%d", h%4), "host", fmt.Sprintf("host-%05d", h), "mode", fmt.Sprintf("mode-%02d", m),
				"os", "linux", "rack", fmt.Sprintf("r%03d", h%200), "service", fmt.Sprintf("web%02d", h%25),
			)})
			if err != nil {
				b.Fatal(err)
			}
			for i := range int64(samples) {
				batch.AddDouble(ref, i*10_000, float64((int64(h*m)+i*i)%1000)/100, 0)
			}
		}
		if err := s.Append(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	return hosts * modes
}

// BenchmarkGroups groups 200,000 series of one metric by tags, over an hour.
func BenchmarkGroups(b *testing.B) {
	s := openEmbedded(b)
	series := fillWide(b, s)
	engine := newEngine(s, query.DefaultConfig())
	hour := Args{"sampling": Sampling{1, Hours}}
	avg, last := []Step{newStep(b, "avg", hour)}, []Step{newStep(b, "last", hour)}
	for _, c := range []struct {
		name  string
		by    []string
		steps []Step
	}{
		{"avg/groups=4", []string{"dc"}, avg},
		{"avg/groups=200", []string{"rack"}, avg},
		{"last/groups=200", []string{"rack"}, last},
		{"avg/groups=10000", []string{"host"}, avg},
		{"avg/groups=200000", []string{"host", "mode"}, avg},
		{"raw/groups=200", []string{"rack"}, nil},
		{"raw/groups=200000", []string{"host", "mode"}, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := MetricQuery{Metric: "m", GroupBy: []GroupBy{&TagGroupBy{Tags: c.by}}, Steps: c.steps}
			measure(b, func() error { return exhaust(engine, m) }, series, "series")
		})
	}
}
