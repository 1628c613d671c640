package remove

import (
	"github.com/prometheus/client_golang/prometheus"
)

// deleteMetrics count what deletes do.
type deleteMetrics struct {
	rows, unindexed, kept prometheus.Counter
	jobs                  *prometheus.CounterVec
	running               prometheus.Gauge
}

func newDeleteMetrics() *deleteMetrics {
	return &deleteMetrics{
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_rows_deleted_total", Help: "Rows of data_points of which samples were deleted, wholly or in part."}),
		unindexed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_row_keys_deleted_total", Help: "Row keys whose index rows were removed since no sample was left."}),
		kept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairosrows_row_keys_kept_total", Help: "Row keys whose index rows were left since a KairosDB node may write there."}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_kairosrows_delete_jobs_total", Help: "Delete jobs that ended, by outcome: done, failed, cancelled."}, []string{"outcome"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_kairosrows_delete_jobs_running", Help: "Delete jobs at work in this process."}),
	}
}

func (m *deleteMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.rows, m.unindexed, m.kept, m.jobs, m.running}
}
