package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

type metrics struct {
	*collectors.Set
	unregister func()

	events, refused prometheus.Counter
}

func newMetrics(s *Shelf) *metrics {
	m := &metrics{Set: collectors.Named("varve_timeline_store_")}
	m.events = m.Counter("events_total", "Events that the embedded store of timelines was given.")
	m.refused = m.Counter("space_blocks_total", "Times that timelines began to refuse writes for lack of disk space.")
	m.GaugeFunc("bytes", "Disk space that the embedded store of timelines takes.", func() float64 {
		return float64(s.db.Metrics().DiskSpaceUsage())
	})
	m.GaugeFunc("write_amplification", "Bytes that the embedded store of timelines wrote to disk for each byte it was given.", func() float64 {
		total := s.db.Metrics().Total()
		return total.WriteAmp()
	})
	return m
}
