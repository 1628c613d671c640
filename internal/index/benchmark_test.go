package index_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/store"
)

const million = 1_000_000

// oneMetric is series i of a million in one metric: 10 tags, 100,000 hosts.
func oneMetric(i int) model.Series {
	return model.Series{Metric: "cpu.load", Type: model.TypeDouble, Tags: model.MustTags(
		"arch", "x64", "dc", fmt.Sprintf("dc-%d", i/10%30), "env", fmt.Sprintf("env-%d", i%3), "host", fmt.Sprintf("host-%d", i/10),
		"os", fmt.Sprintf("os-%d", i/10%10), "rack", fmt.Sprintf("rack-%d", i/10%100), "region", fmt.Sprintf("region-%d", i/10%9),
		"service", fmt.Sprintf("service-%d", i/10%20), "team", fmt.Sprintf("team-%d", i/10%50), "unit", fmt.Sprintf("unit-%d", i%10))}
}

// perUser is series i of a million, each with a tag value of its own.
func perUser(i int) model.Series {
	return model.Series{Metric: "requests", Type: model.TypeLong, Tags: model.MustTags(
		"dc", fmt.Sprintf("dc-%d", i%4), "user", fmt.Sprintf("user-%d", i*7919%million))}
}

// fleet is series i of 20 metrics with 50,000 hosts and 6 tags.
func fleet(i int) model.Series {
	host := i / 20
	return model.Series{Metric: fmt.Sprintf("metric.number.%d", i%20), Type: model.TypeDouble, Tags: model.MustTags(
		"dc", fmt.Sprintf("dc-%d", host%4), "env", "prod", "host", fmt.Sprintf("host-%d", host), "os", fmt.Sprintf("os-%d", host%5),
		"rack", fmt.Sprintf("rack-%d", host%200), "team", fmt.Sprintf("team-%d", host%12))}
}

// graphite is one of a million metrics without tags.
func graphite(i int) model.Series {
	return model.Series{Metric: fmt.Sprintf("servers.dc%d.host%05d.cpu.%d", i%4, i*7919%million/10, i%10), Type: model.TypeDouble}
}

var shapes = []struct {
	name   string
	series func(int) model.Series
}{{"one-metric", oneMetric}, {"per-user", perUser}, {"fleet", fleet}, {"graphite", graphite}}

var built sync.Map // shape name -> *index.Index

// build returns an index of a million series, made once per shape.
func build(b *testing.B, shape int) *index.Index {
	if x, ok := built.Load(shapes[shape].name); ok {
		return x.(*index.Index)
	}
	x := index.New()
	for i := range million {
		x.Add(model.SeriesNumber(i), shapes[shape].series(i))
	}
	built.Store(shapes[shape].name, x)
	return x
}

// BenchmarkAdd adds a million series one after another; ns/op is per series.
func BenchmarkAdd(b *testing.B) {
	for _, shape := range shapes {
		b.Run("shape="+shape.name, func(b *testing.B) {
			series := make([]model.Series, million)
			for i := range series {
				series[i] = shape.series(i)
			}
			before := heap()
			x := index.New()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%million == 0 {
					x = index.New()
				}
				x.Add(model.SeriesNumber(i%million), series[i%million])
			}
			b.StopTimer()
			if n := x.Len(); n > million/2 {
				b.ReportMetric(float64(heap()-before)/float64(n), "heap-B/series")
				b.ReportMetric(float64(x.Stats().SizeBytes)/float64(n), "stats-B/series")
			}
			runtime.KeepAlive(series)
			runtime.KeepAlive(x)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkSelect(b *testing.B) {
	x := build(b, 0)
	one := func(tag, value string) model.Matcher { return model.Matcher{Tag: tag, Values: []string{value}} }
	like := func(tag, expr string) model.Matcher {
		return model.Matcher{Tag: tag, Patterns: []*model.Pattern{pattern(b, expr)}}
	}
	for _, bench := range []struct {
		name string
		ms   []model.Matcher
	}{
		{"exact=10", []model.Matcher{one("host", "host-777")}},
		{"exact=10,and-large", []model.Matcher{one("arch", "x64"), one("host", "host-777")}},
		{"exact=111k", []model.Matcher{one("region", "region-7")}},
		{"two-large=11k", []model.Matcher{one("region", "region-7"), one("os", "os-3")}},
		{"all", nil},
		{"set-of-3", []model.Matcher{like("host", "host-(1|22|333)")}},
		{"prefix=11k", []model.Matcher{like("host", "host-12.*")}},
		{"contains", []model.Matcher{like("host", ".*99.*")}},
		{"regexp-with-literal", []model.Matcher{like("host", ".*99[0-4]+")}},
		{"regexp", []model.Matcher{like("host", "[a-z]+-[1-3]+")}},
		{"any-of-100k", []model.Matcher{like("host", ".*")}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			var found uint64
			for range b.N {
				ids, err := x.Select(context.Background(), "cpu.load", bench.ms, nil)
				if err != nil {
					b.Fatal(err)
				}
				found = ids.GetCardinality()
			}
			b.ReportMetric(float64(found), "found")
		})
	}
}

func BenchmarkNames(b *testing.B) {
	for _, bench := range []struct {
		name  string
		shape int
		q     store.NamesQuery
	}{
		{"metrics=1e6,prefix,page", 3, store.NamesQuery{Prefix: "servers.dc2.host012", Limit: 100}},
		{"metrics=1e6,after,page", 3, store.NamesQuery{After: "servers.dc1.host77", Limit: 100}},
		{"metrics=1e6,contains", 3, store.NamesQuery{Pattern: pattern(b, ".*host00777.*")}},
		{"metrics=1e6,all", 3, store.NamesQuery{}},
		{"values=1e5,prefix,page", 0, store.NamesQuery{Kind: store.TagValues, Metric: "cpu.load", Tag: "host", Prefix: "host-5", Limit: 100}},
		{"values=1e6,page", 1, store.NamesQuery{Kind: store.TagValues, Tag: "user", Limit: 100}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			x := build(b, bench.shape)
			b.ReportAllocs()
			b.ResetTimer()
			var found int
			for range b.N {
				names, _, err := x.Names(context.Background(), bench.q)
				if err != nil {
					b.Fatal(err)
				}
				found = len(names)
			}
			b.ReportMetric(float64(found), "found")
		})
	}
}
