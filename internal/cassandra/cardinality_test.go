package cassandra

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/growth"
	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/store"
)

// TestCardinality: the series that got samples through this process are counted over all
// keyspaces, by metric, tag and value, and so are the new ones.
func TestCardinality(t *testing.T) {
	c := defaultSettings()
	c.Hosts = []string{"127.0.0.1:1"}
	c.Keyspaces = []KeyspaceConfig{{Name: "second", Metrics: []string{"prefix=b."}, ClusterConfig: ClusterConfig{Keyspace: "second"}}}
	s := openKeyspaces(t, vfs.NewMem(), c)
	var b store.Batch
	b.Reset(s.Epoch())
	add := func(metric string, n int) {
		for i := range n {
			ref, err := s.Create(t.Context(), model.Series{Metric: metric, Tags: model.MustTags("dc", "x", "host", fmt.Sprint(i)), Type: model.TypeLong})
			if err != nil {
				t.Fatal(err)
			}
			b.Samples = append(b.Samples, store.Sample{Ref: ref, TimeMS: 1})
		}
	}
	add("a", 3)
	add("b.x", 5)
	add("c", 1)
	if got := s.LargestMetrics(1); !slices.Equal(got, []growth.Metric{{Metric: "b.x", Series: 5}}) {
		t.Errorf("largest before the first sample: %v", got)
	}
	if got := s.Cardinality("", 2); got.CreatedStart != 0 || len(got.GrowthRecent) != 0 {
		t.Errorf("growth before the first sample: %+v", got.Report)
	}
	add("a", 3) // as by another sender
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	got := s.Cardinality("", 2)
	if got.Series != 9 || got.Metrics != 3 || got.MemoryBytes <= 0 ||
		!slices.Equal(got.TopMetrics, []index.MetricCount{{Metric: "b.x", Series: 5}, {Metric: "a", Series: 3}}) ||
		!slices.Equal(got.TopTags, []index.TagCount{{Tag: "host", Values: 8}, {Tag: "dc", Values: 2}}) ||
		!slices.Equal(got.TopPairs, []index.PairCount{{Tag: "dc", Value: "x", Series: 9}, {Tag: "host", Value: "0", Series: 3}}) {
		t.Errorf("%+v", got)
	}
	if got.CreatedStart != 9 || got.CreatedRecent != 9 || !slices.Equal(got.GrowthRecent, []growth.Metric{{Metric: "b.x", Series: 5}, {Metric: "a", Series: 3}}) {
		t.Errorf("growth: %+v", got.Report)
	}
	if one := s.Cardinality("b.x", 2); one.Series != 5 || one.Metrics != 1 || one.CreatedRecent != 5 || len(one.TopMetrics) != 1 {
		t.Errorf("of one metric: %+v", one)
	}
	if got := s.LargestMetrics(1); !slices.Equal(got, []growth.Metric{{Metric: "b.x", Series: 5}}) {
		t.Errorf("largest: %v", got)
	}
	if got := s.FastestMetrics(1); !slices.Equal(got, []growth.Metric{{Metric: "b.x", Series: 5}}) {
		t.Errorf("fastest: %v", got)
	}
}

// TestLargestMetricsForgetsIdleSeries: metrics are listed by the series that are there, not by those that have come
// and gone since the start.
func TestLargestMetricsForgetsIdleSeries(t *testing.T) {
	c := defaultSettings()
	c.Hosts = []string{"127.0.0.1:1"}
	s := openKeyspaces(t, vfs.NewMem(), c)
	for range 10 { // counted when they were new, and forgotten since
		s.growth.Add(s.stores[0].now(), "gone")
	}
	if _, err := s.Create(t.Context(), model.Series{Metric: "there", Type: model.TypeLong}); err != nil {
		t.Fatal(err)
	}
	if got := s.LargestMetrics(2); !slices.Equal(got, []growth.Metric{{Metric: "there", Series: 1}}) {
		t.Errorf("largest: %v", got)
	}
}

// TestLargestMetricsOfManySeries: of many series, a part is looked at, and numbers are estimated.
func TestLargestMetricsOfManySeries(t *testing.T) {
	c := defaultSettings()
	c.Hosts = []string{"127.0.0.1:1"}
	s := openKeyspaces(t, vfs.NewMem(), c)
	for i := range lookedAt + 1 {
		metric := "rare"
		if i%2 == 1 || i%8 == 0 {
			metric = "frequent"
		}
		if _, err := s.Create(t.Context(), model.Series{Metric: metric, Tags: model.MustTags("i", fmt.Sprint(i)), Type: model.TypeLong}); err != nil {
			t.Fatal(err)
		}
	}
	got := s.LargestMetrics(1)
	if len(got) != 1 || got[0].Metric != "frequent" || got[0].Series < lookedAt*60/100 || got[0].Series > lookedAt*65/100 {
		t.Errorf("largest: %v, want about %d of frequent", got, lookedAt*5/8)
	}
}
