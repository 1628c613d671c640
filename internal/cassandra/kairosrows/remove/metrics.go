package remove

import (
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/layout"
	"varve/internal/collectors"
)

// metrics are the metrics of deletes.
type metrics struct {
	*collectors.Set
	rows, unindexed, kept prometheus.Counter
	rested                prometheus.Counter
	jobs                  *prometheus.CounterVec
	running, atOnce       prometheus.Gauge
}

func newMetrics() *metrics {
	set := collectors.Named("varve_cassandra_")
	m := &metrics{
		Set:       set,
		rows:      set.Counter("rows_deleted_total", "Rows of data_points of which samples were deleted, wholly or in part."),
		unindexed: set.Counter("row_keys_deleted_total", "Row keys whose index rows were removed because no sample was left."),
		kept:      set.Counter("row_keys_kept_total", "Row keys whose index rows were kept because a KairosDB node may write there."),
		rested:    set.Counter("delete_rest_seconds_total", "Time that deletes rested so that samples written by this server at the same time do not wait for them."),
		jobs:      set.CounterVec("delete_jobs_total", "Delete jobs that ended, by outcome: done, failed, cancelled.", "outcome"),
		atOnce:    set.Gauge("delete_rows_at_once", "Rows that the last delete processed concurrently, at most 32."),
		running:   set.Gauge("delete_jobs_running", "Delete jobs running in this process."),
	}
	for _, outcome := range []string{layout.JobDone, layout.JobFailed, layout.JobCancelled} {
		m.jobs.WithLabelValues(outcome) // shown from the start
	}
	return m
}
