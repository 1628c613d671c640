package write

import (
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

// metrics are the metrics of a Writer.
type metrics struct {
	*collectors.Set
	written, batches, indexRows prometheus.Counter
	refused                     *prometheus.CounterVec
}

func newMetrics(w *Writer) *metrics {
	set := collectors.Named("varve_cassandra_")
	set.GaugeFunc("index_cache_rows", "Row keys whose index rows are known to be there.",
		func() float64 { n, _ := w.known.size(); return float64(n) })
	set.CounterFunc("index_cache_evictions_total", "Row keys that were forgotten because index_cache is too small.",
		func() float64 { _, n := w.known.size(); return float64(n) })
	return &metrics{
		Set:       set,
		written:   set.Counter("samples_written_total", "Samples written to data_points; those of a generation that is repeated count again."),
		batches:   set.Counter("sample_batches_total", "Batches of samples of one row written to data_points."),
		indexRows: set.Counter("index_rows_written_total", "Rows written to row_keys, tag_indexed_row_keys and varve_row_index."),
		refused:   set.CounterVec("samples_dropped_total", "Accepted samples that could not be stored in Cassandra and were dropped, by reason.", "reason"),
	}
}
