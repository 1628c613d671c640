package spool

import (
	"iter"
	"math/rand/v2"

	"varve/internal/index"
)

// Cardinality counts the indexed series of a metric, or of all if metric is "", and lists the
// limit largest parts. Idle series are in the index until a reader lists names.
func (s *Spool) Cardinality(metric string, limit int) index.Cardinality {
	return s.index.Cardinality(metric, limit)
}

// SeriesMetrics yields the metrics of registered series, those that SeriesCount counts, but only
// of one series in every, chosen at random.
func (s *Spool) SeriesMetrics(every int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, id := range s.series.IDs() {
			if every > 1 && rand.IntN(every) > 0 {
				continue
			}
			if series, ok := s.series.Series(id); ok && !yield(series.Metric) {
				return
			}
		}
	}
}
