package wal

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/units"
)

// BenchmarkAppend appends records to a log on disk and waits for each of them.
// Segments are released as they fill up, as a store's checkpoints do.
// 5 KB is about 1,000 samples, 60 B about one.
func BenchmarkAppend(b *testing.B) {
	for _, durability := range []string{Fsync, Interval} {
		for _, size := range []int{60, 5000} {
			for _, appenders := range []int{1, 16, 128} {
				name := fmt.Sprintf("durability=%s/bytes=%d/appenders=%d", durability, size, appenders)
				b.Run(name, func(b *testing.B) { benchmarkAppend(b, durability, size, appenders) })
			}
		}
	}
}

func benchmarkAppend(b *testing.B, durability string, size, appenders int) {
	cfg := DefaultConfig()
	cfg.Durability, cfg.SegmentBytes = durability, 16*units.MiB
	registry := prometheus.NewRegistry()
	l, err := Open(vfs.Default, b.TempDir(), cfg, Options{Registerer: registry})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	payload := numbered(1, size-8)
	ctx := context.Background()
	perSegment := int(cfg.SegmentBytes) / (size + recordHeaderSize)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	var group sync.WaitGroup
	for a := range appenders {
		group.Go(func() {
			for i := range b.N / appenders {
				if err := l.Reserve(ctx, size); err != nil {
					b.Error(err)
					return
				}
				if err := l.Wait(ctx, l.Append(1, payload)); err != nil {
					b.Error(err)
					return
				}
				if a == 0 && i%(perSegment/appenders+1) == 0 {
					s, err := l.Rotate()
					if err == nil {
						err = l.Release(s)
					}
					if err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/max(metric(b, registry, "varve_wal_sync_seconds"), 1), "records/sync")
}

// BenchmarkQueue is Append alone, without waiting for the disk.
func BenchmarkQueue(b *testing.B) {
	for _, size := range []int{60, 5000} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			cfg := DefaultConfig()
			cfg.Durability, cfg.SegmentBytes = Interval, 16*units.MiB
			l, err := Open(vfs.Default, b.TempDir(), cfg, Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			payload := numbered(1, size-8)
			perSegment := int(cfg.SegmentBytes) / (size + recordHeaderSize)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := l.Reserve(context.Background(), size); err != nil {
					b.Fatal(err)
				}
				l.Append(1, payload)
				if i%perSegment == 0 {
					if s, err := l.Rotate(); err != nil || l.Release(s) != nil {
						b.Fatal(err, l.Err())
					}
				}
			}
		})
	}
}

// BenchmarkReplay reads a log of 5 KB records, from the system's cache.
func BenchmarkReplay(b *testing.B) {
	const records, size = 10_000, 5000
	dir := b.TempDir()
	l, err := Open(vfs.Default, dir, Config{Durability: Interval}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	payload := numbered(1, size-8)
	for range records {
		if err := l.Reserve(context.Background(), size); err != nil {
			b.Fatal(err)
		}
		l.Append(1, payload)
	}
	closeLog(b, l)
	b.SetBytes(records * size)
	b.ReportAllocs()
	for b.Loop() {
		stats, err := Replay(vfs.Default, dir, ReplayOptions{}, func(Segment, byte, []byte) error { return nil })
		if err != nil || stats.Records != records {
			b.Fatal(stats, err)
		}
	}
}

// BenchmarkTornTail searches a full reused segment behind a torn record.
func BenchmarkTornTail(b *testing.B) {
	for _, stale := range []string{"records", "random", "zeros"} {
		b.Run("stale="+stale, func(b *testing.B) {
			const size = 64 << 20
			file := make([]byte, 0, size+6000)
			file = append(file, segmentHeader{segment: 1}.encode()...)
			switch stale {
			case "random":
				file = append(file, numbered(1, size)...)
			case "zeros":
				file = file[:size]
			case "records":
				for n := uint64(0); len(file) < size; n++ {
					at := len(file)
					payload := numbered(n%100, 5000)
					file = append(file, make([]byte, recordHeaderSize)...)
					frame(file[at:], 1, len(payload))
					file = append(file, payload...)
					finish(file[at:], 7, int64(at), segmentHeaderSize)
				}
			}
			fsys := vfs.NewMem()
			writeFile(b, fsys, Segment(1).FileName(), file)
			b.SetBytes(int64(len(file)))
			for b.Loop() {
				if got, stats, err := replayWith(fsys, ReplayOptions{}); err != nil || len(got) != 0 {
					b.Fatal(stats, err)
				}
			}
		})
	}
}
