package embedded

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/store"
)

// millionSeries appends samples to many series of 20 metrics with 10 tags. Each series is
// created right before its first sample: the store forgets those without one.
func millionSeries(b *testing.B, s *Store, series, samples int) {
	b.Helper()
	var batch store.Batch
	refs := make([]store.Ref, 0, series)
	for n := range samples {
		for i := 0; i < series; {
			batch.Reset(s.Epoch())
			for range min(5000, series-i) {
				if n == 0 {
					refs = append(refs, oneOfMillion(b, s, i))
				}
				batch.AddDouble(refs[i], 1_700_000_000_000+int64(n)*10_000, float64(i%1000)/100+float64(n), 0)
				i++
			}
			if err := s.Append(b.Context(), &batch); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func oneOfMillion(b *testing.B, s *Store, i int) store.Ref {
	ref, err := s.Create(b.Context(), model.Series{
		Metric: fmt.Sprintf("metric.number.%d", i%20), Type: model.TypeDouble,
		Tags: model.MustTags("host", fmt.Sprintf("host-%06d", i/20), "dc", fmt.Sprintf("dc%d", i%4),
			"rack", fmt.Sprintf("r%d", i/20%40), "os", "linux", "env", "prod", "team", fmt.Sprintf("t%d", i/20%7)),
	})
	if err != nil {
		b.Fatal(err)
	}
	return ref
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkMemory reports what an active series costs, all included.
func BenchmarkMemory(b *testing.B) {
	const series, samples = 1_000_000, 8
	cfg := DefaultConfig()
	cfg.HeadBytes, cfg.HeadBytesMax, cfg.CheckpointSamples = 1<<30, 2<<30, 1<<40
	for b.Loop() {
		before := heapBytes()
		s, err := Open(vfs.Default, b.TempDir(), cfg, Options{})
		if err != nil {
			b.Fatal(err)
		}
		millionSeries(b, s, series, samples)
		b.ReportMetric(float64(heapBytes()-before)/series, "B/series")
		b.ReportMetric(float64(s.buffered()-s.definedBytes.Load())/series, "head-B/series")
		s.Close()
	}
}

// BenchmarkOpen times opening a store of a million series: after an orderly
// end, and with 10 million samples in the log.
func BenchmarkOpen(b *testing.B) {
	b.Run("series=1e6", func(b *testing.B) {
		dir := b.TempDir()
		s, err := Open(vfs.Default, dir, DefaultConfig(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		millionSeries(b, s, 1_000_000, 2)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		for b.Loop() {
			began := time.Now()
			s, err := Open(vfs.Default, dir, DefaultConfig(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(began).Seconds(), "s/open")
			s.Close()
		}
	})
	b.Run("log=1e7", func(b *testing.B) {
		cfg := DefaultConfig()
		cfg.HeadBytes, cfg.HeadBytesMax, cfg.CheckpointSamples = 1<<30, 2<<30, 1<<40
		fs := crashfs.New()
		s, err := Open(fs, "data", cfg, Options{})
		if err != nil {
			b.Fatal(err)
		}
		w := newWorkload(b, s, 200, 10_000)
		var batch store.Batch
		for total, from := 0, 0; total < 10_000_000; total += len(batch.Samples) {
			batch.Reset(s.Epoch())
			from = w.fill(&batch, from, 500)
			if err := s.Append(context.Background(), &batch); err != nil {
				b.Fatal(err)
			}
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{})
		s.Close()
		for b.Loop() {
			clone := crashed.CrashClone(vfs.CrashCloneCfg{})
			began := time.Now()
			s, err := Open(clone, "data", cfg, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(began).Seconds(), "s/open")
			s.stop()
			s.Close()
		}
	})
}
