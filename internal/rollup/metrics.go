package rollup

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	runs    *prometheus.CounterVec
	points  prometheus.Counter
	seconds prometheus.Histogram
	active  prometheus.Gauge
	invalid prometheus.Gauge
	late    prometheus.Counter
}

// Outcomes of a run.
const (
	runOK        = "ok"
	runFailed    = "failed"
	runSkipped   = "skipped"
	runCancelled = "cancelled"
)

func newMetrics(r prometheus.Registerer, s *Scheduler) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_rollup_runs_total",
			Help: "Runs of roll-up tasks by outcome; skipped ones were due while the previous one was still active.",
		}, []string{"outcome"}),
		points: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_rollup_points_total",
			Help: "Points stored by roll-up tasks and backfills, recomputed ones included.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "varve_rollup_run_seconds",
			Help:    "Time that a run of a task took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_rollup_active_runs",
			Help: "Tasks and batches of backfills that run now; at most rollups.max_concurrent.",
		}),
		invalid: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_rollup_invalid_tasks",
			Help: "Stored tasks that cannot be run, because what they ask for is not known here; the log says why.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_rollup_late_spans_total",
			Help: "Stretches of time that were computed again for points that came in late.",
		}),
	}
	for _, outcome := range []string{runOK, runFailed, runSkipped, runCancelled} {
		m.runs.WithLabelValues(outcome)
	}
	r.MustRegister(m.runs, m.points, m.seconds, m.active, m.invalid, m.late,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_rollup_late_spans",
			Help: "Stretches of time that wait to be computed again, since points came in late; at most rollups.max_late_spans for each metric of a roll-up.",
		}, func() float64 { return float64(s.late.count("", "")) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_rollup_backfills",
			Help: "Backfills that run or wait for a place; at most 8, further ones are answered 503.",
		}, func() float64 { return float64(len(s.fills)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_rollup_watched_series",
			Help: "Series whose late points are noted.",
		}, func() float64 { return float64(s.late.series()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_rollup_tasks",
			Help: "Roll-up tasks that are scheduled.",
		}, func() float64 { return float64(s.count()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_rollup_tasks_here",
			Help: "Roll-up tasks that this server runs; the others are run by other servers on the same keyspace.",
		}, func() float64 { return float64(s.countOwn()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "varve_rollup_overdue_seconds",
			Help: "How long the task that is most behind its schedule has been due; 0 if none is.",
		}, func() float64 { return s.overdue().Seconds() }),
	)
	return m
}
