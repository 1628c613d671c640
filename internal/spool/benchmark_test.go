package spool

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
)

// drop is a sink that reads all samples and discards them.
type drop struct{ samples int64 }

func (d *drop) Write(_ context.Context, g *Generation) error {
	var (
		run  head.Run
		cols model.Columns
	)
	for id := range g.Series() {
		if _, err := g.Snapshot(id, model.AllTime, &run); err != nil {
			return err
		}
		cols.Reset()
		for _, f := range run.Fragments {
			if err := run.Decode(f, &cols); err != nil {
				return err
			}
		}
		d.samples += int64(cols.Len() + run.Open.Len())
	}
	return nil
}

// workload is that of embedded's benchmarks: hosts x 20 series, 10 two-decimal
// random walks, 7 growing counters, 3 constants per host.
type workload struct {
	refs   []store.Ref
	values []float64
	ms     int64
	rng    *rand.Rand
}

func newWorkload(b *testing.B, s *Spool, hosts int) *workload {
	w := &workload{ms: 1_700_000_000_000, rng: rand.New(rand.NewPCG(1, 2))}
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
		i, w.ms = 0, w.ms+10_000
	}
	return i
}

// BenchmarkAppend appends batches of 500 samples on a disk, while a sink that takes no time
// drains them, or is unavailable.
func BenchmarkAppend(b *testing.B) {
	for _, hosts := range []int{200, 10_000} {
		for _, away := range []bool{false, true} {
			b.Run(fmt.Sprintf("series=%d/away=%v", hosts*20, away), func(b *testing.B) {
				o := Options{Sink: &drop{}}
				if away {
					o.Sink = nil
				}
				cfg := DefaultConfig()
				cfg.Linger = time.Second
				s, err := Open(vfs.Default, b.TempDir(), cfg, o)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				w := newWorkload(b, s, hosts)
				var batch store.Batch
				from, total := 0, 0
				b.ReportAllocs()
				b.ResetTimer()
				for b.Loop() {
					batch.Reset(s.Epoch())
					from = w.fill(&batch, from, 500)
					total += len(batch.Samples)
					if err := s.Append(context.Background(), &batch); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/sample")
				b.ReportMetric(float64(s.metricsSpills()), "spills")
			})
		}
	}
}

func (s *Spool) metricsSpills() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spillTotal
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkMemory reports what a million series with few samples cost: their
// names, then their samples with the remote store away, then without samples.
func BenchmarkMemory(b *testing.B) {
	const hosts, rounds = 50_000, 3
	for b.Loop() {
		before := heapBytes()
		s, err := Open(vfs.Default, b.TempDir(), DefaultConfig(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		w := newWorkload(b, s, hosts)
		own := uint64(len(w.refs)*4 + len(w.values)*8)
		series := float64(len(w.refs))
		b.ReportMetric(float64(heapBytes()-before-own)/series, "names-B/series")
		var batch store.Batch
		for from, n := 0, 0; n < rounds*len(w.refs); n += len(batch.Samples) {
			batch.Reset(s.Epoch())
			from = w.fill(&batch, from, 5000)
			if err := s.Append(context.Background(), &batch); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heapBytes()-before-own)/series, "away-B/series")
		h := s.Health()
		b.ReportMetric(float64(h.MemoryBytes)/(1<<20), "counted-MiB")
		b.ReportMetric(float64(h.FileBytes)/(1<<20), "files-MiB")
		s.Start(&drop{})
		if _, err := s.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(heapBytes()-before-own)/series, "idle-B/series")
		s.Close()
	}
}

// BenchmarkOpen replays 10 million samples.
func BenchmarkOpen(b *testing.B) {
	fs := crashfs.New()
	s, err := Open(fs, "spool", DefaultConfig(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	w := newWorkload(b, s, 200)
	var batch store.Batch
	for total, from := 0, 0; total < 10_000_000; total += len(batch.Samples) {
		batch.Reset(s.Epoch())
		from = w.fill(&batch, from, 500)
		if err := s.Append(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
	for b.Loop() {
		clone := fs.CrashClone(vfs.CrashCloneCfg{})
		began := time.Now()
		s, err := Open(clone, "spool", DefaultConfig(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/open")
		s.Close()
	}
}
