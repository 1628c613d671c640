package rollup

import (
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

type metrics struct {
	runs    *prometheus.CounterVec
	points  prometheus.Counter
	seconds prometheus.Histogram
	active  prometheus.Gauge
	invalid prometheus.Gauge
	late    prometheus.Counter
	kept    prometheus.Counter
	refused prometheus.Counter
}

// Outcomes of a run.
const (
	runOK        = "ok"
	runFailed    = "failed"
	runSkipped   = "skipped"
	runCancelled = "cancelled"
)

func newMetrics(r prometheus.Registerer, s *Scheduler) *metrics {
	set := collectors.Named("varve_rollup_")
	m := &metrics{
		runs:    set.CounterVec("runs_total", "Runs of roll-up tasks by outcome; skipped ones were due while the previous one was still active.", "outcome"),
		points:  set.Counter("points_total", "Points stored by roll-up tasks and backfills, recomputed ones included."),
		seconds: set.Histogram("run_seconds", "Time that a run of a task took.", prometheus.ExponentialBuckets(0.001, 4, 10)),
		active:  set.Gauge("active_runs", "Tasks and batches of backfills that are running; at most rollups.max_concurrent."),
		invalid: set.Gauge("invalid_tasks", "Stored tasks that cannot be run, because they use something unknown to this server; the log says what."),
		kept:    set.Counter("results_kept_total", "Results that were recomputed but not stored, because a policy has downsampled their points, or has downsampled the earlier results and not all of their bucket could be recomputed."),
		refused: set.Counter("results_refused_total", "Results that were not stored, because the names of their series are refused, or a limit of series; the status of the task says why. All others are stored."),
		late:    set.Counter("late_spans_total", "Time ranges that were recomputed for late points."),
	}
	for _, outcome := range []string{runOK, runFailed, runSkipped, runCancelled} {
		m.runs.WithLabelValues(outcome)
	}
	set.GaugeFunc("late_spans", "Time ranges that wait to be recomputed for late points; at most 1000 for each metric of a roll-up.",
		func() float64 { return float64(s.late.Count("", "")) })
	set.CounterFunc("late_outlived_total", "Late points whose buckets were not recomputed, because other points of these buckets have expired: the results stay as they are.",
		func() float64 { return float64(s.late.Outlived()) })
	set.GaugeFunc("backfills", "Backfills that run or wait; at most 8, further ones get 503.",
		func() float64 { return float64(len(s.fills)) })
	set.GaugeFunc("watched_series", "Series whose late points are recorded.",
		func() float64 { return float64(s.late.Series()) })
	set.GaugeFunc("tasks", "Roll-up tasks that are scheduled.",
		func() float64 { return float64(s.count()) })
	set.GaugeFunc("tasks_here", "Roll-up tasks that this server runs; the others are run by other servers on the same keyspace.",
		func() float64 { return float64(s.countOwn()) })
	set.GaugeFunc("overdue_seconds", "How long the task furthest behind its schedule has been due; 0 if none is.",
		func() float64 { return s.overdue().Seconds() })
	set.MustRegister(r)
	return m
}
