package cassandra

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	views   prometheus.Gauge
	guesses *prometheus.CounterVec // right, wrong
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		views: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_cassandra_views", Help: "Views of the store that are open.",
		}),
	}
	m.guesses = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "varve_cassandra_guessed_selections_total",
		Help: "Selections of few series that an earlier question had made too, and that were read while the index was asked; wrong ones were read again."}, []string{"result"})
	r.MustRegister(m.views, m.guesses)
	return m
}
