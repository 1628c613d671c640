package query

import (
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

// metrics of an Engine.
type metrics struct {
	queries    *prometheus.CounterVec // by outcome
	seconds    prometheus.Histogram
	samples    prometheus.Counter
	series     prometheus.Counter
	summarized prometheus.Counter
	running    prometheus.Gauge
	queued     prometheus.Gauge
	shed       *prometheus.CounterVec // by line
	slow       prometheus.Counter

	memory        prometheus.Gauge
	memoryMax     prometheus.Gauge
	memoryWaits   prometheus.Gauge
	memoryRefused prometheus.Counter
	slowReaders   prometheus.Counter

	textBytes   *prometheus.GaugeVec // by size, as are those that wait
	textWaiting *prometheus.GaugeVec
	textRefused prometheus.Counter

	deletesWaiting prometheus.Gauge
	deletesRefused prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	set := collectors.Named("varve_query_")
	m := &metrics{
		queries:    set.CounterVec("queries_total", "Finished queries by outcome: ok, input, limit, timeout, cancelled, busy, failed.", "outcome"),
		seconds:    set.Histogram("duration_seconds", "Time from the start of a query to its last point, without the wait for a free slot.", prometheus.ExponentialBuckets(0.001, 4, 9)),
		samples:    set.Counter("samples_total", "Samples that queries read or took from statistics."),
		series:     set.Counter("series_total", "Series that queries selected."),
		summarized: set.Counter("summarized_runs_total", "Runs of samples that were answered from statistics."),
		running:    set.Gauge("running", "Queries that have begun and not ended, with a slot or waiting for their next turn."),
		queued:     set.Gauge("queued", "Queries that wait for a slot, including those that have begun."),
	}
	m.shed = set.CounterVec("congested_refused_total", "Requests refused before query.max_wait, because for half of that time no request in the line was served promptly. line: begin (a slot), turn (the third turn), parse_small, parse_large, parse_operator, delete.", "line")
	m.slow = set.Counter("slow_total", "Queries that took at least query.slow, waiting included.")
	m.memory = set.Gauge("memory_bytes", "Memory that queries, the texts of their requests, and answers that are not sent yet hold together.")
	m.memoryMax = set.Gauge("memory_max_bytes", "Memory that queries, the texts of their requests, and answers that are not sent yet may hold together: query.total_memory.")
	m.memoryWaits = set.Gauge("memory_waiting", "Queries and answers that wait for memory that others hold.")
	m.memoryRefused = set.Counter("memory_refused_total", "Queries and answers for which no memory became free within query.max_wait, or that began last of those that held memory while all of them waited for more.")
	m.slowReaders = set.Counter("slow_readers_total", "Answers that were ended because their clients read less than 64 KiB per second while queries waited for memory.")
	m.textBytes = set.GaugeVec("text_bytes", "Part of varve_query_memory_bytes for the texts of requests, from their first byte until their query ends.", "size")
	m.textWaiting = set.GaugeVec("text_waiting", "Requests that wait to be parsed.", "size")
	m.textRefused = set.Counter("text_refused_total", "Requests that were refused for lack of memory for their texts, or of a turn to be parsed.")
	m.deletesWaiting = set.Gauge("deletes_waiting", "Deletes that wait until others have ended.")
	m.deletesRefused = set.Counter("deletes_refused_total", "Deletes that were refused because too many waited, or others did not end within query.max_wait.")
	for _, name := range laneNames { // shown from the start
		m.textBytes.WithLabelValues(name)
		m.textWaiting.WithLabelValues(name)
	}
	for _, outcome := range []string{outcomeOK, "input", "limit", "timeout", "cancelled", "busy", "failed"} {
		m.queries.WithLabelValues(outcome) // shown from the start
	}
	set.MustRegister(r)
	return m
}
