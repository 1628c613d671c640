package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
)

// workload is a set of series that advance in steps, in the order in which
// collectors send them.
type workload struct {
	refs   []store.Ref
	double []bool
	values []float64
	ms     int64
	stepMS int64
	rng    *rand.Rand
}

// newWorkload creates hosts x 20 series: 10 two-decimal random walks, 7 growing
// counters, 3 constants per host.
func newWorkload(b *testing.B, s *Store, hosts int, stepMS int64) *workload {
	w := &workload{ms: 1_700_000_000_000, stepMS: stepMS, rng: rand.New(rand.NewPCG(1, 2))}
	for h := range hosts {
		for m := range 20 {
			t := model.TypeDouble
			if m >= 10 {
				t = model.TypeLong
			}
			ref, err := s.Create(context.Background(), model.Series{
				Metric: fmt.Sprintf("metric.number.%d", m), Type: t,
				Tags: model.MustTags("host", fmt.Sprintf("host-%04d", h), "dc", fmt.Sprintf("dc%d", h%4),
					"rack", fmt.Sprintf("r%d", h%20), "os", "linux", "env", "prod", "team", fmt.Sprintf("t%d", h%7)),
			})
			if err != nil {
				b.Fatal(err)
			}
			w.refs = append(w.refs, ref)
			w.double = append(w.double, m < 10)
			w.values = append(w.values, float64(w.rng.IntN(10000))/100)
		}
	}
	return w
}

// fill appends the next samples of up to n series, beginning at from, to batch.
func (w *workload) fill(batch *store.Batch, from, n int) (next int) {
	i := from
	for ; i < len(w.refs) && i < from+n; i++ {
		switch m := i % 20; {
		case m < 10:
			w.values[i] = math.Round((w.values[i]+w.rng.Float64()-0.5)*100) / 100
			batch.AddDouble(w.refs[i], w.ms, w.values[i], 0)
		case m < 17:
			w.values[i] += float64(w.rng.IntN(100))
			batch.AddLong(w.refs[i], w.ms, int64(w.values[i]), 0)
		default:
			batch.AddLong(w.refs[i], w.ms, int64(w.values[i]), 0)
		}
	}
	if i == len(w.refs) {
		i = 0
		w.ms += w.stepMS
	}
	return i
}

func benchmarkAppend(b *testing.B, hosts int, fs vfs.FS, dir string) {
	s, err := Open(fs, dir, DefaultConfig(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w := newWorkload(b, s, hosts, 10_000)
	var batch store.Batch
	const size = 500
	from, total := 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		batch.Reset(s.Epoch())
		from = w.fill(&batch, from, size)
		total += len(batch.Samples)
		if err := s.Append(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/sample")
	began := time.Now()
	if err := s.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	u := s.Usage()
	b.ReportMetric(float64(u.FileBytes)/float64(u.FileSamples), "B/sample")
	b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(u.FileSamples), "compact-ns/sample")
}

func BenchmarkAppend(b *testing.B) {
	for _, hosts := range []int{200, 10_000} {
		b.Run(fmt.Sprintf("series=%d/disk", hosts*20), func(b *testing.B) { benchmarkAppend(b, hosts, vfs.Default, b.TempDir()) })
	}
}

func BenchmarkRead(b *testing.B) {
	s, err := Open(vfs.NewMem(), "data", DefaultConfig(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w := newWorkload(b, s, 50, 10_000)
	var batch store.Batch
	start := w.ms
	for w.ms < start+6*3600*1000 {
		batch.Reset(s.Epoch())
		for from := w.fill(&batch, 0, 1000); from != 0; {
			from = w.fill(&batch, from, 1000)
		}
		if err := s.Append(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	read := func(b *testing.B, o store.ReadOptions) {
		v, err := s.View(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		defer v.Close()
		samples := 0
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			ref := w.refs[i%len(w.refs)]
			series, _ := s.series.Series(model.SeriesNumber(ref))
			c := v.Read(context.Background(), store.Series{Ref: ref, Series: series}, o)
			for {
				block, err := c.Next()
				if err != nil {
					b.Fatal(err)
				}
				if block == nil {
					break
				}
				samples += block.Len()
			}
			c.Close()
			i++
		}
		b.ReportMetric(float64(samples)/float64(b.N), "samples/op")
	}
	hour := store.ReadOptions{Range: model.TimeRange{StartMS: start + 3600_000, EndMS: start + 2*3600_000}}
	last := store.ReadOptions{Range: model.AllTime, Descending: true, Limit: 1}
	sums := store.ReadOptions{Range: model.AllTime, Summarize: &store.Summary{Final: func(int64) int64 { return math.MaxInt64 }, Needs: model.AllStats}}
	for _, place := range []string{"head", "files"} {
		b.Run("hour/"+place, func(b *testing.B) { read(b, hour) })
		b.Run("last/"+place, func(b *testing.B) { read(b, last) })
		b.Run("all/"+place, func(b *testing.B) { read(b, store.ReadOptions{Range: model.AllTime}) })
		b.Run("sums/"+place, func(b *testing.B) { read(b, sums) })
		if err := s.Compact(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSelect selects all series of a metric, in the order of ids and in that of
// model.Series.Compare, which is another.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		s, err := Open(vfs.NewMem(), "data", DefaultConfig(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		var batch store.Batch
		batch.Reset(s.Epoch())
		for i := range n {
			tags := model.MustTags("host", fmt.Sprint("h", i*7919%n), "rack", fmt.Sprint(i%10))
			ref, err := s.Create(b.Context(), model.Series{Metric: "m", Tags: tags, Type: model.TypeLong})
			if err != nil {
				b.Fatal(err)
			}
			batch.AddLong(ref, 1000, 1, 0)
		}
		if err := s.Append(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
		for _, any := range []bool{true, false} {
			b.Run(fmt.Sprintf("series=%d/any-order=%v", n, any), func(b *testing.B) {
				v, err := s.View(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				defer v.Close()
				b.ReportAllocs()
				for b.Loop() {
					found := 0
					for _, err := range v.Select(b.Context(), store.Selection{Metric: "m", Range: model.AllTime, AnyOrder: any}) {
						if err != nil {
							b.Fatal(err)
						}
						found++
					}
					if found != n {
						b.Fatalf("%d series, want %d", found, n)
					}
				}
			})
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPolicy is what a sample costs in its life, in user CPU time, with a policy,
// with one that asks for sketches, and without one: two days of samples every ten
// seconds, with a checkpoint and merges after each hour. Compare one with the other on
// the same machine.
func BenchmarkPolicy(b *testing.B) {
	const stages = "10s:6h,60s:24h,1h:5y"
	for _, c := range []struct {
		stages string
		sketch bool
	}{{"", false}, {stages, false}, {stages, true}} {
		b.Run(fmt.Sprintf("stages=%s/sketch=%t", c.stages, c.sketch), func(b *testing.B) {
			for b.Loop() {
				benchmarkPolicy(b, c.stages, c.sketch)
			}
		})
	}
}

func benchmarkPolicy(b *testing.B, stages string, sketch bool) {
	const hosts, hours, stepMS = 10, 48, 10_000
	now := atomic.Int64{}
	now.Store(1_700_000_000_000)
	o := Options{Now: func() time.Time { return time.UnixMilli(now.Load()) }}
	if stages != "" {
		p := retention.PolicyConfig{Name: "a", Stages: stages, Sketch: sketch, XFilesFactor: -1}
		rules, err := retention.Config{Policies: []retention.PolicyConfig{p}}.Rules()
		if err != nil {
			b.Fatal(err)
		}
		o.Book = retention.NewShelf(&retention.Book{Rules: rules})
	}
	c := quietConfig("interval")
	c.MergeFiles = DefaultConfig().MergeFiles
	s, err := Open(vfs.NewMem(), "data", c, o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w := newWorkload(b, s, hosts, stepMS)
	var batch store.Batch
	samples := 0
	began := userCPU(b)
	for range hours {
		for end := w.ms + 3_600_000; w.ms < end; {
			batch.Reset(s.Epoch())
			for from := w.fill(&batch, 0, 1000); from != 0; {
				from = w.fill(&batch, from, 1000)
			}
			samples += len(batch.Samples)
			if err := s.Append(context.Background(), &batch); err != nil {
				b.Fatal(err)
			}
		}
		now.Store(w.ms)
		if err := errors.Join(s.checkpoint(), s.maintain(context.Background())); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(userCPU(b)-began)/float64(samples), "user-ns/sample")
	b.ReportMetric(float64(s.Usage().FileBytes)/float64(samples), "B/sample")
}

// userCPU is the time that the process has computed.
func userCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}
