package rollup

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/embedded"
	"varve/internal/ingest"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
)

// BenchmarkLate stores batches of 100 points of a metric that a roll-up reads, on a real
// disk: points that are not late, late ones of a bucket that is noted, and late ones whose
// bucket is new with each batch.
func BenchmarkLate(b *testing.B) {
	const batch = 100
	for _, buckets := range []string{"none", "noted", "new"} {
		b.Run("late="+buckets, func(b *testing.B) {
			s, err := embedded.Open(vfs.Default, b.TempDir(), embedded.DefaultConfig(), embedded.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			registry := prometheus.NewRegistry()
			engine := agg.New(query.New(s, query.DefaultConfig(), registry, time.Now), nil)
			pipeline := ingest.New(s, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
			scheduler := New(Options{
				Store: s, Engine: engine, Pipeline: pipeline, Config: DefaultConfig(), Registerer: registry, Host: "here",
				Parser: kairos.New(s, engine, kairos.DefaultConfig(), "test", time.Now),
			})
			if err := s.Set(b.Context(), service, configKey, "t", taskJSON("t", hour, minute, "")); err != nil {
				b.Fatal(err)
			}
			scheduler.Load(b.Context())
			w := pipeline.NewWriter(pipeline.Protocol("test"), "", 0)
			names := &ingest.Names{Metric: "src", Tags: []model.Tag{{Name: "host", Value: "a"}}}
			now, n := time.Now().UnixMilli(), int64(0)
			for b.Loop() {
				n++
				ms := now
				switch buckets {
				case "noted":
					ms = 3_600_000
				case "new":
					ms = n * 2 * 3_600_000
				}
				_, err := w.Ingest(b.Context(), batch, func() error {
					ref, err := w.ResolveTyped(model.TypeLong, names)
					for i := range int64(batch) {
						w.Batch().AddLong(ref, ms+i, i, 0)
					}
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*batch), "ns/sample")
		})
	}
}
