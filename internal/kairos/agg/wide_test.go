package agg

import (
	"testing"

	"varve/internal/query"
)

// BenchmarkWide asks for one metric of 100,000 series with few samples each.
func BenchmarkWide(b *testing.B) {
	s := openEmbedded(b)
	fillGauges(b, s, 200, 500, 12, 300_000)
	engine := newEngine(s, query.DefaultConfig())
	avg := []Step{newStep(b, "avg", Args{"sampling": Sampling{1, Hours}})}
	newest := MetricQuery{Metric: "m", Limit: 1, Descending: true, WithoutTags: true}
	for name, m := range map[string]MetricQuery{
		"avg/groups=200":    {GroupBy: []GroupBy{&TagGroupBy{Tags: []string{"host"}}}, Steps: avg},
		"avg/groups=100000": {GroupBy: []GroupBy{&TagGroupBy{Tags: []string{"host", "n"}}}, Steps: avg},
		"avg/groups=1":      {Steps: avg},
		"newest/groups=200": {GroupBy: []GroupBy{&TagGroupBy{Tags: []string{"host"}}}, Limit: newest.Limit, Descending: true},
	} {
		b.Run(name, func(b *testing.B) {
			m.Metric = "m"
			b.ReportAllocs()
			for b.Loop() {
				if err := exhaust(engine, m); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/series")
		})
	}
}
