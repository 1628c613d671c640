package ingest

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	samples      *prometheus.CounterVec
	rejected     *prometheus.CounterVec
	waits        *prometheus.CounterVec
	created      prometheus.Counter
	misses       prometheus.Counter
	stale        prometheus.Counter
	appendTime   prometheus.Histogram
	batchSamples prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, p *Pipeline) *metrics {
	m := &metrics{
		samples: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_ingest_samples_total",
			Help: "Samples stored, by protocol.",
		}, []string{"protocol"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_ingest_rejected_total",
			Help: "Inputs (lines, metric objects, points, bodies) refused, by protocol and reason.",
		}, []string{"protocol", "reason"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "varve_ingest_waits_total",
			Help: "Times a sender was held up, by what was used up: samples (max_samples_in_flight) or bodies (body_memory).",
		}, []string{"for"}),
		created: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_ingest_series_created_total",
			Help: "Series that a sender named for the first time.",
		}),
		misses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_ingest_alias_misses_total",
			Help: "Series whose names had to be parsed because the alias cache did not hold them.",
		}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_ingest_stale_blocks_total",
			Help: "Blocks of input parsed again because series references had become void.",
		}),
		appendTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "varve_ingest_append_seconds",
			Help:    "Time the store took to accept a batch.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}),
		batchSamples: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "varve_ingest_batch_samples",
			Help:    "Samples per batch given to the store.",
			Buckets: prometheus.ExponentialBuckets(1, 8, 7),
		}),
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	r.MustRegister(m.samples, m.rejected, m.waits, m.created, m.misses, m.stale, m.appendTime, m.batchSamples,
		gauge("varve_ingest_samples_in_flight", "Samples parsed and not yet stored; at most max_samples_in_flight.",
			func() float64 { return float64(p.inFlight.inUse()) }),
		gauge("varve_ingest_series_used_ratio", "Series that the store holds, as a share of max_series.",
			func() float64 { return float64(p.appender.SeriesCount()) / float64(p.growth.Load().maxSeries) }),
		gauge("varve_ingest_series_memory_bytes", "Memory of the names of all series and the index of them, approximate.",
			func() float64 { return float64(p.appender.SeriesBytes()) }),
		gauge("varve_ingest_series_memory_max_bytes", "Memory from which new series are refused: max_series_memory.",
			func() float64 { return float64(p.growth.Load().maxMemory) }),
		gauge("varve_ingest_body_bytes", "Memory held by HTTP bodies; at most body_memory.",
			func() float64 { return float64(p.bodies.inUse()) }),
		gauge("varve_ingest_alias_cache_bytes", "Memory held by the alias cache; at most alias_cache.",
			func() float64 { _, b := p.aliases.Load().size(); return float64(b) }),
		gauge("varve_ingest_alias_cache_entries", "Aliases held by the cache.",
			func() float64 { n, _ := p.aliases.Load().size(); return float64(n) }),
	)
	return m
}
