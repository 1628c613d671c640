package spool

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a spool. Names begin with varve_spool_.
type metrics struct {
	samples, batches, stalls                  prometheus.Counter
	refusedBytes, refusedMemory, refusedStore prometheus.Counter
	drainedSamples, drainedGenerations        prometheus.Counter
	sinkFailures                              prometheus.Counter
	sinkSeconds                               prometheus.Histogram
	spills, spillFailures                     prometheus.Counter
	spaceBlocks, forgotten                    prometheus.Counter
	views                                     prometheus.Gauge
	collectors                                []prometheus.Collector
}

func newMetrics(s *Spool) *metrics {
	m := &metrics{}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_spool_" + name, Help: help})
		m.collectors = append(m.collectors, c)
		return c
	}
	gauge := func(name, help string, value func() float64) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "varve_spool_" + name, Help: help}, value))
	}
	m.samples = counter("appended_samples_total", "samples acknowledged")
	m.batches = counter("appended_batches_total", "batches acknowledged")
	m.stalls = counter("append_stalls_total", "appends that waited because memory was full")
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_spool_refused_batches_total", Help: "batches refused, by the bound that was reached"}, []string{"reason"})
	m.collectors = append(m.collectors, refused)
	m.refusedBytes = refused.WithLabelValues("max_bytes")
	m.refusedMemory = refused.WithLabelValues("max_memory")
	m.refusedStore = refused.WithLabelValues("acknowledge_timeout")
	m.drainedSamples = counter("drained_samples_total", "samples that the remote store has taken, overwritten ones included")
	m.drainedGenerations = counter("drained_generations_total", "generations that the remote store has taken")
	m.sinkFailures = counter("sink_failures_total", "attempts to write a generation to the remote store that failed; each is repeated")
	m.sinkSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "varve_spool_sink_seconds", Help: "duration of attempts to write a generation to the remote store",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
	})
	m.collectors = append(m.collectors, m.sinkSeconds)
	m.spills = counter("spills_total", "generations that were moved from memory to files")
	m.spillFailures = counter("spill_failures_total", "generations that could not be moved to files; it is tried again")
	m.spaceBlocks = counter("disk_full_total", "times writes were refused for want of disk space")
	m.forgotten = counter("forgotten_series_total", "idle series forgotten")
	m.views = prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_spool_views", Help: "open views, one a query"})
	m.collectors = append(m.collectors, m.views)

	gauge("samples", "samples that the remote store does not have yet", func() float64 { return float64(s.Health().Samples) })
	gauge("generations", "complete generations that wait for the remote store", func() float64 { return float64(s.Health().Generations) })
	gauge("bytes", "disk space of log records and files that the remote store does not have yet", func() float64 {
		h := s.Health()
		return float64(h.LogBytes + h.FileBytes)
	})
	gauge("memory_bytes", "memory of samples that the remote store does not have yet", func() float64 { return float64(s.memory()) })
	gauge("file_bytes", "size of files with samples that memory has no room for", func() float64 { return float64(s.Health().FileBytes) })
	gauge("oldest_seconds", "age of the oldest sample that the remote store does not have yet, by its arrival", func() float64 {
		if oldest := s.Health().Oldest; !oldest.IsZero() {
			return max(0, time.Since(oldest).Seconds())
		}
		return 0
	})
	gauge("sink_failing", "1 while the remote store takes nothing", func() float64 {
		if h := s.Health(); h.SinkError != nil || !h.Started {
			return 1
		}
		return 0
	})
	gauge("series", "series known", func() float64 { return float64(s.series.Count()) })
	gauge("index_bytes", "memory of the index, approximate", func() float64 { return float64(s.index.Stats().SizeBytes) })
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range m.collectors {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}
