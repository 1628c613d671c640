package local

import (
	"github.com/cockroachdb/pebble/v2"
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
	m.events = m.Counter("events_total", "Events that were put into the embedded store of timelines.")
	m.refused = m.Counter("space_blocks_total", "Times that timelines began to refuse writes for lack of disk space.")
	m.GaugeFunc("bytes", "Disk space that the embedded store of timelines uses.", s.measured(func(m *pebble.Metrics) float64 {
		return float64(m.DiskSpaceUsage())
	}))
	m.GaugeFunc("write_amplification", "Bytes that the embedded store of timelines wrote to disk for each byte put into it.", s.measured(func(m *pebble.Metrics) float64 {
		total := m.Total()
		return total.WriteAmp()
	}))
	return m
}

// measured returns a function that reads a metric of the database while it is open, and
// returns 0 otherwise.
func (s *Shelf) measured(of func(*pebble.Metrics) float64) func() float64 {
	return func() float64 {
		if s.begin() != nil {
			return 0
		}
		defer s.end()
		return of(s.db.Metrics())
	}
}
