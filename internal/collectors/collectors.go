// Package collectors makes the metrics of a part of the server and registers them: all
// of them or none, and for as long as that part is there.
package collectors

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A Set is the metrics of a part, whose names begin alike.
type Set struct {
	prefix string
	labels prometheus.Labels // of all that is added
	all    *[]prometheus.Collector
}

// Named returns a set without metrics.
func Named(prefix string) *Set { return &Set{prefix: prefix, all: new([]prometheus.Collector)} }

// Labelled returns s for adding metrics that have these labels, too.
func (s *Set) Labelled(labels prometheus.Labels) *Set { return &Set{s.prefix, labels, s.all} }

func add[C prometheus.Collector](s *Set, c C) C {
	*s.all = append(*s.all, c)
	return c
}

// Counter adds a counter.
func (s *Set) Counter(name, help string) prometheus.Counter {
	return add(s, prometheus.NewCounter(prometheus.CounterOpts{Name: s.prefix + name, Help: help, ConstLabels: s.labels}))
}

// CounterVec adds a counter for each combination of labels.
func (s *Set) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return add(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: s.prefix + name, Help: help, ConstLabels: s.labels}, labels))
}

// CounterFunc adds a counter that is kept elsewhere.
func (s *Set) CounterFunc(name, help string, value func() float64) {
	add(s, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: s.prefix + name, Help: help, ConstLabels: s.labels}, value))
}

// GaugeVec adds a gauge for each combination of labels.
func (s *Set) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: s.prefix + name, Help: help, ConstLabels: s.labels}, labels))
}

// Gauge adds a gauge.
func (s *Set) Gauge(name, help string) prometheus.Gauge {
	return add(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: s.prefix + name, Help: help, ConstLabels: s.labels}))
}

// GaugeFunc adds a gauge that is kept elsewhere.
func (s *Set) GaugeFunc(name, help string, value func() float64) {
	add(s, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: s.prefix + name, Help: help, ConstLabels: s.labels}, value))
}

// Histogram adds a histogram.
func (s *Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return add(s, prometheus.NewHistogram(prometheus.HistogramOpts{Name: s.prefix + name, Help: help, ConstLabels: s.labels, Buckets: buckets}))
}

// HistogramVec adds a histogram for each combination of labels.
func (s *Set) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return add(s, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: s.prefix + name, Help: help, ConstLabels: s.labels, Buckets: buckets}, labels))
}

// Register registers what was added, all or none, and returns what takes it back, which
// may be called more than once: it does nothing then, since others may have registered
// the same names meanwhile. Without a registerer nothing is done.
func (s *Set) Register(r prometheus.Registerer) (unregister func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	all := *s.all
	take := func(some []prometheus.Collector) {
		for _, c := range some {
			r.Unregister(c)
		}
	}
	for i, c := range all {
		if err := r.Register(c); err != nil {
			take(all[:i])
			return nil, err
		}
	}
	return sync.OnceFunc(func() { take(all) }), nil
}

// MustRegister is Register for what stays as long as the process.
func (s *Set) MustRegister(r prometheus.Registerer) { r.MustRegister(*s.all...) }
