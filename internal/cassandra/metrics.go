package cassandra

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	views prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		views: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_cassandra_views", Help: "Views of the store that are open.",
		}),
	}
	r.MustRegister(m.views)
	return m
}
