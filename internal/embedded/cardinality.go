package embedded

import (
	"varve/internal/growth"
	"varve/internal/index"
)

// A Cardinality says how many series there are, what most of them belong to,
// and where new ones come from.
type Cardinality struct {
	index.Cardinality
	growth.Report

	MemoryBytes    int64  // see SeriesBytes
	UnusedSeries   int64  // created, but without a sample so far
	SeriesEverSeen uint32 // ids given out since the store was created
}

// Cardinality counts the series of a metric, or of all if metric is "", and
// lists the limit largest parts.
func (s *Store) Cardinality(metric string, limit int) Cardinality {
	c := Cardinality{Cardinality: s.index.Cardinality(metric, limit), Report: s.growth.Report(s.now(), metric, limit)}
	c.UnusedSeries, c.MemoryBytes = s.series.Unlogged(), s.SeriesBytes()
	c.SeriesEverSeen = uint32(s.series.NextID())
	return c
}

// LargestMetrics lists the metrics with the most series.
func (s *Store) LargestMetrics(limit int) []growth.Metric {
	var list []growth.Metric
	for _, m := range s.index.TopMetrics(limit) {
		list = append(list, growth.Metric{Metric: m.Metric, Series: int64(m.Series)})
	}
	return list
}

// FastestMetrics lists the metrics that got the most new series in the last
// minutes.
func (s *Store) FastestMetrics(limit int) []growth.Metric {
	return s.growth.Report(s.now(), "", limit).GrowthRecent
}
