package write

import (
	"github.com/prometheus/client_golang/prometheus"
)

// writeMetrics count what a Writer does.
type writeMetrics struct {
	written   prometheus.Counter
	batches   prometheus.Counter
	indexRows prometheus.Counter
	refused   *prometheus.CounterVec
	cached    prometheus.GaugeFunc
	evicted   prometheus.CounterFunc
}

func newWriteMetrics(w *Writer) *writeMetrics {
	return &writeMetrics{
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_samples_written_total", Help: "Samples written to data_points; those of a generation that is repeated count again."}),
		batches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_sample_batches_total", Help: "Batches of samples of one row written to data_points."}),
		indexRows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_index_rows_written_total", Help: "Rows written to row_keys, tag_indexed_row_keys and varve_row_index."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_kairosrows_samples_dropped_total", Help: "Samples that were taken in and not written, by reason."}, []string{"reason"}),
		cached: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_kairosrows_index_cache_rows", Help: "Row keys whose index rows are known to be there."},
			func() float64 { n, _ := w.known.size(); return float64(n) }),
		evicted: prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "varve_kairosrows_index_cache_evictions_total", Help: "Row keys that were forgotten since index_cache is too small."},
			func() float64 { _, n := w.known.size(); return float64(n) }),
	}
}

func (m *writeMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.written, m.batches, m.indexRows, m.refused, m.cached, m.evicted}
}
