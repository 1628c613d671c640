package spool

import "varve/internal/index"

// Cardinality counts the indexed series of a metric, or of all if metric is "", and lists the
// limit largest parts. Idle series are in the index until a reader lists names.
func (s *Spool) Cardinality(metric string, limit int) index.Cardinality {
	return s.index.Cardinality(metric, limit)
}

// TopMetrics lists the metrics with the most indexed series.
func (s *Spool) TopMetrics(limit int) []index.MetricCount { return s.index.TopMetrics(limit) }
