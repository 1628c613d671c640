package cassandra

import (
	"cmp"
	"slices"
	"strings"

	"varve/internal/growth"
	"varve/internal/index"
)

// A Cardinality says which metrics and tags have the most series, and which get new ones. It
// covers only the series that recently got samples through this process: Cassandra may have
// many more.
type Cardinality struct {
	index.Cardinality
	growth.Report

	MemoryBytes int64 // see SeriesBytes
}

// Cardinality counts the series of a metric, or of all if metric is "", and lists the limit
// largest parts. The Series of all are those that ingest.max_series limits. A tag and its
// values count once in each keyspace.
func (k *Keyspaces) Cardinality(metric string, limit int) Cardinality {
	c := Cardinality{Report: k.growth.Report(k.stores[0].now(), metric, limit), MemoryBytes: k.SeriesBytes()}
	for _, s := range k.stores {
		part := s.spool.Cardinality(metric, limit)
		c.Series += part.Series
		c.Metrics += part.Metrics
		c.TagNames += part.TagNames
		c.TagPairs += part.TagPairs
		c.TopMetrics = append(c.TopMetrics, part.TopMetrics...)
		c.TopTags = append(c.TopTags, part.TopTags...)
		c.TopPairs = append(c.TopPairs, part.TopPairs...)
	}
	if metric == "" {
		c.Series = k.SeriesCount()
	}
	c.TopMetrics = largest(c.TopMetrics, limit, func(m *index.MetricCount) (string, *int) { return m.Metric, &m.Series })
	c.TopTags = largest(c.TopTags, limit, func(t *index.TagCount) (string, *int) { return t.Tag, &t.Values })
	c.TopPairs = largest(c.TopPairs, limit, func(p *index.PairCount) (string, *int) { return p.Tag + "\x00" + p.Value, &p.Series })
	return c
}

// lookedAt is about how many series LargestMetrics looks at; with more series, it estimates.
const lookedAt = 200_000

// LargestMetrics lists the metrics with the most series, among those that SeriesCount counts. It
// includes series without samples, which are not in the index.
func (k *Keyspaces) LargestMetrics(limit int) []growth.Metric {
	every := 1 + k.SeriesCount()/lookedAt
	list := growth.Largest(func(yield func(string) bool) {
		for _, s := range k.stores {
			for metric := range s.spool.SeriesMetrics(every) {
				if !yield(metric) {
					return
				}
			}
		}
	}, limit)
	for i := range list {
		list[i].Series *= int64(every)
	}
	return list
}

// FastestMetrics lists the metrics that got the most new series in the last minutes.
func (k *Keyspaces) FastestMetrics(limit int) []growth.Metric {
	return k.growth.Report(k.stores[0].now(), "", limit).GrowthRecent
}

// largest adds up what several keyspaces have under one name, and keeps the limit largest.
func largest[T any](parts []T, limit int, of func(*T) (name string, count *int)) []T {
	at := make(map[string]int, len(parts))
	var all []T
	for _, p := range parts {
		name, n := of(&p)
		if i, ok := at[name]; ok {
			_, sum := of(&all[i])
			*sum += *n
			continue
		}
		at[name], all = len(all), append(all, p)
	}
	slices.SortFunc(all, func(a, b T) int {
		x, nx := of(&a)
		y, ny := of(&b)
		return cmp.Or(cmp.Compare(*ny, *nx), strings.Compare(x, y))
	})
	return all[:min(limit, len(all))]
}
