package spool

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// BenchmarkSelect asks for one of 300,000 series of a metric that wait in
// generations, in memory or in files.
func BenchmarkSelect(b *testing.B) {
	const series = 300_000
	for _, files := range []bool{false, true} {
		cfg := DefaultConfig()
		cfg.GenerationSamples = 100_000
		if files {
			cfg.GenerationBytes, cfg.MaxMemory = 8*units.MiB, 16*units.MiB
		}
		s, err := Open(vfs.NewMem(), "spool", cfg, Options{})
		if err != nil {
			b.Fatal(err)
		}
		for round := range 3 {
			for from := 0; from < series; from += 1000 {
				var batch store.Batch
				batch.Reset(s.Epoch())
				for i := from; i < from+1000; i++ {
					ref, err := s.Create(context.Background(), model.Series{Metric: "load", Type: model.TypeLong, Tags: model.MustTags("city", fmt.Sprintf("city%d", i), "region", fmt.Sprintf("r%d", i%100))})
					if err != nil {
						b.Fatal(err)
					}
					batch.AddLong(ref, int64(round)*10_000, 1, 0)
				}
				if err := s.Append(context.Background(), &batch); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, c := range []struct {
			name     string
			matchers []model.Matcher
			want     int
		}{
			{"one", []model.Matcher{{Tag: "city", Values: []string{"city4711"}}}, 1},
			{"region", []model.Matcher{{Tag: "region", Values: []string{"r7"}}}, series / 100},
			{"all", nil, series},
		} {
			b.Run(fmt.Sprintf("files=%v/%s", files, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					v := s.View()
					ids, err := idsOf(v.Select(context.Background(), "load", c.matchers, model.AllTime, nil))
					if err != nil || len(ids) != c.want {
						b.Fatal(len(ids), err)
					}
					v.Close()
				}
			})
		}
		s.Close()
	}
}
