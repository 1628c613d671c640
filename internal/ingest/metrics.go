package ingest

import (
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
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
	set := collectors.Named("varve_ingest_")
	m := &metrics{
		samples:      set.CounterVec("samples_total", "Samples stored, by protocol.", "protocol"),
		rejected:     set.CounterVec("rejected_total", "Inputs (lines, metric objects, points, bodies) refused, by protocol and reason.", "protocol", "reason"),
		waits:        set.CounterVec("waits_total", "Times a sender was held up, by what was used up: samples (samples_in_flight_max), rate (samples_per_second), bodies (body_memory), buffers (of connections of lines and pickles, an eighth of body_memory) or names (of new series, which the store indexes one block after the other).", "for"),
		created:      set.Counter("series_created_total", "Series that a sender named for the first time."),
		misses:       set.Counter("alias_misses_total", "Series whose names had to be parsed because the alias cache did not hold them."),
		stale:        set.Counter("stale_blocks_total", "Blocks of input parsed again because series references had become void."),
		appendTime:   set.Histogram("append_seconds", "Time the store took to accept a batch.", prometheus.ExponentialBuckets(0.0001, 4, 9)),
		batchSamples: set.Histogram("batch_samples", "Samples per batch given to the store.", prometheus.ExponentialBuckets(1, 8, 7)),
	}
	set.GaugeFunc("samples_in_flight", "Samples parsed and not yet stored; at most samples_in_flight_max.",
		func() float64 { return float64(p.inFlight.InUse()) })
	set.GaugeFunc("samples_in_flight_max", "Samples in flight at which senders wait: 131,072 for each processor, at most 1,000,000.",
		func() float64 { return float64(p.inFlight.Most()) })
	set.CounterFunc("congested_refused_total", "Blocks of HTTP requests refused at once because the store had been slow for a while and enough blocks waited.",
		func() float64 { return float64(p.writes.refused.Load()) })
	set.GaugeFunc("series_used_ratio", "Series that the store holds, as a share of max_series.",
		func() float64 { return float64(p.appender.SeriesCount()) / float64(p.series.Load().maxSeries) })
	set.GaugeFunc("series_memory_bytes", "Memory of the names of all series and of their index, approximate.",
		func() float64 { return float64(p.appender.SeriesBytes()) })
	set.GaugeFunc("series_memory_max_bytes", "Memory at which new series are refused: max_series_memory.",
		func() float64 { return float64(p.series.Load().maxMemory) })
	set.GaugeFunc("body_bytes", "Memory held by HTTP bodies.",
		func() float64 { return float64(p.bodies.InUse() + p.smallBodies.InUse()) })
	set.GaugeFunc("body_max_bytes", "Memory at which further HTTP bodies wait: body_memory.",
		func() float64 { return float64(p.cfg.BodyMemory) })
	set.GaugeFunc("alias_cache_bytes", "Memory held by the alias cache; at most 128MiB, and a quarter of max_series_memory.",
		func() float64 { _, b := p.aliases.Load().size(); return float64(b) })
	set.GaugeFunc("alias_cache_entries", "Aliases held by the cache.",
		func() float64 { n, _ := p.aliases.Load().size(); return float64(n) })
	for _, limit := range []string{"samples", "rate", "bodies", "buffers", "names"} {
		m.waits.WithLabelValues(limit) // shown from the start
	}
	set.MustRegister(r)
	return m
}
