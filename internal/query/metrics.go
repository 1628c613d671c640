package query

import "github.com/prometheus/client_golang/prometheus"

// metrics of an Engine.
type metrics struct {
	queries    *prometheus.CounterVec // by outcome
	seconds    prometheus.Histogram
	samples    prometheus.Counter
	series     prometheus.Counter
	summarized prometheus.Counter
	running    prometheus.Gauge
	queued     prometheus.Gauge

	memory        prometheus.Gauge
	memoryMax     prometheus.Gauge
	memoryWaits   prometheus.Gauge
	memoryRefused prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_query_queries_total",
			Help: "Finished queries by outcome: ok, input, limit, timeout, cancelled, busy, failed.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "varve_query_duration_seconds",
			Help:    "Time from the start of a query to its last point, without the wait for a free place.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
		samples: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_query_samples_total", Help: "Samples that queries read or took from statistics.",
		}),
		series: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_query_series_total", Help: "Series that queries selected.",
		}),
		summarized: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_query_summarized_runs_total", Help: "Runs of samples that statistics answered.",
		}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_query_running", Help: "Queries that have begun and not ended, with a place or waiting for their next turn.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_query_queued", Help: "Queries that wait for a place, including those that have begun.",
		}),
	}
	m.memory = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "varve_query_memory_bytes", Help: "Memory that queries, the texts of their requests, and answers that are not sent yet hold together.",
	})
	m.memoryMax = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "varve_query_memory_max_bytes", Help: "Memory that queries, the texts of their requests, and answers that are not sent yet may hold together: query.total_memory.",
	})
	m.memoryWaits = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "varve_query_memory_waiting", Help: "Queries and answers that wait for memory that others hold.",
	})
	m.memoryRefused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "varve_query_memory_refused_total", Help: "Queries and answers for which no memory became free within query.max_wait.",
	})
	r.MustRegister(m.memory, m.memoryMax, m.memoryWaits, m.memoryRefused)
	r.MustRegister(m.queries, m.seconds, m.samples, m.series, m.summarized, m.running, m.queued)
	return m
}

// textMetrics are of the texts of requests.
type textMetrics struct {
	bytes   *prometheus.GaugeVec
	waiting *prometheus.GaugeVec
	refused prometheus.Counter
}

func newTextMetrics(r prometheus.Registerer) *textMetrics {
	m := &textMetrics{
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "varve_query_text_bytes", Help: "Part of varve_query_memory_bytes that texts of requests hold, which are read, wait, or are queried by.",
		}, []string{"size"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "varve_query_text_waiting", Help: "Requests that wait to be parsed.",
		}, []string{"size"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_query_text_refused_total", Help: "Requests that were refused for lack of memory for their texts, or of a turn to be parsed.",
		}),
	}
	r.MustRegister(m.bytes, m.waiting, m.refused)
	return m
}
