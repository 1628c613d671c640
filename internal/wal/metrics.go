package wal

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one log.
type metrics struct {
	records     prometheus.Counter
	bytes       prometheus.Counter
	syncSeconds prometheus.Histogram
	roomWaits   prometheus.Counter
	failures    prometheus.Counter
}

// newMetrics returns the metrics of a log, and all that is registered while it is open.
func newMetrics(l *Log) (*metrics, []prometheus.Collector) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "wal", Name: name, Help: help})
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "wal", Name: name, Help: help}, f)
	}
	m := &metrics{
		records:   counter("records_total", "Records written to the log."),
		bytes:     counter("bytes_total", "Bytes written to the log, framing included."),
		roomWaits: counter("room_waits_total", "Times a writer waited for room in the log's buffer."),
		failures:  counter("failures_total", "Failed writes or syncs, each of which stopped the log for good."),
		syncSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "varve", Subsystem: "wal", Name: "sync_seconds", Help: "Duration of each sync of the log.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16), // 50 us to 1.6 s
		}),
	}
	return m, []prometheus.Collector{
		m.records, m.bytes, m.roomWaits, m.failures, m.syncSeconds,
		gauge("queued_bytes", "Bytes appended and not yet written.", func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(l.queued)
		}),
		gauge("segments", "Log files that hold records.", func() float64 {
			n, _ := l.dir.usage()
			return float64(n)
		}),
		gauge("disk_bytes", "Bytes of all log files, those kept for reuse included.", func() float64 {
			_, bytes := l.dir.usage()
			return float64(bytes)
		}),
	}
}
