package wal

import (
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

// metrics of one log.
type metrics struct {
	*collectors.Set
	records, bytes, roomWaits, failures prometheus.Counter
	syncSeconds                         prometheus.Histogram
}

func newMetrics(l *Log) *metrics {
	set := collectors.Named("varve_wal_")
	set.GaugeFunc("queued_bytes", "Bytes appended and not yet written.", func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(l.queued)
	})
	set.GaugeFunc("segments", "Log files that hold records.", func() float64 {
		n, _ := l.dir.usage()
		return float64(n)
	})
	set.GaugeFunc("disk_bytes", "Bytes of all log files, those kept for reuse included.", func() float64 {
		_, bytes := l.dir.usage()
		return float64(bytes)
	})
	return &metrics{
		Set:       set,
		records:   set.Counter("records_total", "Records written to the log."),
		bytes:     set.Counter("bytes_total", "Bytes written to the log, framing included."),
		roomWaits: set.Counter("room_waits_total", "Times a writer waited for room in the log's buffer."),
		failures:  set.Counter("failures_total", "Failed writes or syncs, each of which stopped the log for good."),
		syncSeconds: set.Histogram("sync_seconds", "Duration of each sync of the log.",
			prometheus.ExponentialBuckets(50e-6, 2, 16)), // 50 us to 1.6 s
	}
}
