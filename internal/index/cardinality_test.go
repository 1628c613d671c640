package index_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"varve/internal/index"
	"varve/internal/model"
)

// cardinalityOf computes a Cardinality directly.
func cardinalityOf(series []model.Series, limit int) index.Cardinality {
	metrics, pairs, values := map[string]int{}, map[[2]string]int{}, map[string]int{}
	for _, s := range series {
		metrics[s.Metric]++
		for name, value := range s.Tags.All() {
			pairs[[2]string{name, value}]++
		}
	}
	c := index.Cardinality{Series: len(series), Metrics: len(metrics), TagPairs: len(pairs)}
	for m, n := range metrics {
		c.TopMetrics = append(c.TopMetrics, index.MetricCount{Metric: m, Series: n})
	}
	for p, n := range pairs {
		values[p[0]]++
		c.TopPairs = append(c.TopPairs, index.PairCount{Tag: p[0], Value: p[1], Series: n})
	}
	c.TagNames = len(values)
	for t, n := range values {
		c.TopTags = append(c.TopTags, index.TagCount{Tag: t, Values: n})
	}
	slices.SortFunc(c.TopMetrics, func(a, b index.MetricCount) int {
		return cmp.Or(b.Series-a.Series, cmp.Compare(a.Metric, b.Metric))
	})
	slices.SortFunc(c.TopTags, func(a, b index.TagCount) int { return cmp.Or(b.Values-a.Values, cmp.Compare(a.Tag, b.Tag)) })
	slices.SortFunc(c.TopPairs, func(a, b index.PairCount) int {
		return cmp.Or(b.Series-a.Series, cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.Value, b.Value))
	})
	c.TopMetrics = c.TopMetrics[:min(limit, len(c.TopMetrics))]
	c.TopTags = c.TopTags[:min(limit, len(c.TopTags))]
	c.TopPairs = c.TopPairs[:min(limit, len(c.TopPairs))]
	return c
}

// anyOfEqual replaces want's last pairs with those of got that have equally many
// series.
func anyOfEqual(want, got index.Cardinality, all []index.PairCount) index.Cardinality {
	want.TopPairs = slices.Clone(want.TopPairs)
	for i := range min(len(want.TopPairs), len(got.TopPairs)) {
		if n := len(want.TopPairs); want.TopPairs[i].Series == want.TopPairs[n-1].Series && slices.Contains(all, got.TopPairs[i]) {
			want.TopPairs[i] = got.TopPairs[i]
		}
	}
	return want
}

// TestCardinality counts series of all shapes, after some were removed.
func TestCardinality(t *testing.T) {
	x := index.New()
	var there []model.Series
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 60_000 {
		s := shapes[i%len(shapes)].series(i)
		x.Add(model.SeriesNumber(i), s)
		if rng.IntN(3) == 0 {
			x.Remove(model.SeriesNumber(i), s)
		} else {
			there = append(there, s)
		}
	}
	for _, limit := range []int{1, 10} {
		got := x.Cardinality("", limit)
		if diff := gocmp.Diff(anyOfEqual(cardinalityOf(there, limit), got, cardinalityOf(there, 1<<30).TopPairs), got); diff != "" {
			t.Errorf("of all, limit %d: (-want +got)\n%s", limit, diff)
		}
		of := slices.DeleteFunc(slices.Clone(there), func(s model.Series) bool { return s.Metric != "requests" })
		got = x.Cardinality("requests", limit)
		if diff := gocmp.Diff(anyOfEqual(cardinalityOf(of, limit), got, cardinalityOf(of, 1<<30).TopPairs), got); diff != "" {
			t.Errorf("of one metric, limit %d: (-want +got)\n%s", limit, diff)
		}
	}
	if c := x.Cardinality("nothing", 10); c.Series != 0 || len(c.TopMetrics) != 0 {
		t.Errorf("an unknown metric has %+v", c)
	}
}

func BenchmarkCardinality(b *testing.B) {
	for shape, s := range shapes {
		for _, metric := range []string{"", s.series(0).Metric} {
			b.Run("shape="+s.name+",metric="+metric, func(b *testing.B) {
				x := build(b, shape)
				b.ResetTimer()
				for range b.N {
					x.Cardinality(metric, 10)
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Millisecond), "ms/op")
			})
		}
	}
}
