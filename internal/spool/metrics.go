package spool

import (
	"time"

	"varve/internal/collectors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a spool. Names begin with varve_spool_.
type metrics struct {
	*collectors.Set
	samples, batches, stalls                  prometheus.Counter
	refusedBytes, refusedMemory, refusedStore prometheus.Counter
	drainedSamples, drainedGenerations        prometheus.Counter
	sinkFailures                              prometheus.Counter
	sinkSeconds                               prometheus.Histogram
	spills, spillFailures                     prometheus.Counter
	spaceBlocks, forgotten                    prometheus.Counter
	views                                     prometheus.Gauge
}

func newMetrics(s *Spool) *metrics {
	m := &metrics{Set: collectors.Named("varve_spool_")}
	counter, gauge := m.Counter, m.GaugeFunc
	m.samples = counter("appended_samples_total", "Samples acknowledged.")
	m.batches = counter("appended_batches_total", "Batches acknowledged.")
	m.stalls = counter("append_stalls_total", "Appends that waited because memory was full.")
	m.CounterFunc("append_turn_waits_total", "Appends that waited until other batches were applied; client addresses take turns.", func() float64 { return float64(s.log.TurnWaits()) })
	refused := m.CounterVec("refused_batches_total", "Batches refused, by the bound that was reached.", "reason")
	m.refusedBytes = refused.WithLabelValues("max_bytes")
	m.refusedMemory = refused.WithLabelValues("max_memory")
	m.refusedStore = refused.WithLabelValues("acknowledge_timeout")
	m.drainedSamples = counter("drained_samples_total", "Samples written to the remote store, overwritten ones included.")
	m.drainedGenerations = counter("drained_generations_total", "Generations written to the remote store.")
	m.sinkFailures = counter("sink_failures_total", "Attempts to write a generation to the remote store that failed; each is repeated.")
	m.sinkSeconds = m.Histogram("sink_seconds", "Duration of attempts to write a generation to the remote store.", prometheus.ExponentialBuckets(0.001, 4, 10))
	m.spills = counter("spills_total", "Generations that were moved from memory to files.")
	m.spillFailures = counter("spill_failures_total", "Failed attempts to move a generation to files; each is repeated.")
	m.spaceBlocks = counter("disk_full_total", "Times writes were refused for lack of disk space.")
	m.forgotten = counter("forgotten_series_total", "Idle series forgotten.")
	m.views = m.Gauge("views", "Open views, one for each query.")

	gauge("samples", "Samples that the remote store does not have yet.", func() float64 { return float64(s.Health().Samples) })
	gauge("generations", "Complete generations that wait for the remote store.", func() float64 { return float64(s.Health().Generations) })
	gauge("bytes", "Disk space of log records and files that the remote store does not have yet.", func() float64 {
		h := s.Health()
		return float64(h.LogBytes + h.FileBytes)
	})
	gauge("bytes_max", "Disk space at which samples are refused: max_bytes of the spool.", func() float64 { return float64(s.cfg.MaxBytes) })
	gauge("memory_bytes", "Memory of samples that the remote store does not have yet, or that a query reads here.", func() float64 { return float64(s.memory()) })
	gauge("file_bytes", "Size of files with samples that did not fit in memory, including files that only a query still reads.", func() float64 { return float64(s.Health().FileBytes) })
	gauge("oldest_seconds", "Time since the arrival of the oldest sample that the remote store does not have yet.", func() float64 {
		if oldest := s.Health().Oldest; !oldest.IsZero() {
			return max(0, time.Since(oldest).Seconds())
		}
		return 0
	})
	gauge("sink_failing", "1 while the remote store accepts no samples.", func() float64 {
		if h := s.Health(); h.SinkError != nil || !h.Started {
			return 1
		}
		return 0
	})
	gauge("series", "Series known.", func() float64 { return float64(s.series.Count()) })
	gauge("index_bytes", "Memory of the index, approximate.", func() float64 { return float64(s.index.Bytes()) })
	return m
}
