package server

import (
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"varve/internal/stream"
)

// metrics are the server's own figures.
type metrics struct {
	requests    *prometheus.CounterVec // route, method, code
	seconds     *prometheus.HistogramVec
	bytes       prometheus.Counter
	inFlight    prometheus.Gauge
	connections prometheus.Gauge
	panics      prometheus.Counter
	refused     prometheus.Counter
	evicted     *prometheus.CounterVec // waits_for
	failed      *prometheus.CounterVec // check
	handshakes  *prometheus.CounterVec // stream, reason

	acceptFailures prometheus.Counter
	largeHeaders   prometheus.Counter
	paced          prometheus.Counter
	floods         prometheus.Counter
}

// newMetrics registers the server's figures, and those of the Go runtime and the process.
func newMetrics(r prometheus.Registerer, version string, maxConnections int) *metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "varve", Subsystem: "server", Name: name, Help: help}
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "server", Name: name, Help: help})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(counter("http_requests_total",
			"HTTP requests answered."), []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "varve", Subsystem: "server", Name: "http_request_seconds",
			Help:    "Time from the header of a request to the end of its answer.",
			Buckets: []float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60},
		}, []string{"route"}),
		bytes:       prometheus.NewCounter(counter("http_response_bytes_total", "Bytes of answers, before compression by the connection.")),
		inFlight:    gauge("http_requests_in_flight", "HTTP requests being answered."),
		connections: gauge("http_connections", "Open HTTP connections."),
		panics:      prometheus.NewCounter(counter("panics_total", "Requests that ended in a bug in Varve and were answered with 500.")),
		refused:     prometheus.NewCounter(counter("http_requests_refused_total", "Requests answered 403 because a web page of another origin sent them, or because of a foreign name in Host.")),
		evicted: prometheus.NewCounterVec(counter("http_connections_evicted_total",
			"Connections that were closed to make room for new ones (server.max_connections): those without a complete request header, then those whose body arrived most slowly."), []string{"waits_for"}),
		handshakes: prometheus.NewCounterVec(counter("tls_handshakes_failed_total", "Connections closed because there was no handshake of TLS: not_tls, timeout, ended by the client, certificate not accepted, too_large, other."), []string{"stream", "reason"}),
		failed:     prometheus.NewCounterVec(counter("health_failures_total", "Health checks that failed."), []string{"check"}),

		acceptFailures: prometheus.NewCounter(counter("http_connections_failed_total", "Attempts to accept an HTTP connection that failed, for example because the process may not open more files. The server tries again.")),
		largeHeaders:   prometheus.NewCounter(counter("http_headers_refused_total", "Requests answered 431: their headers were too large or too many.")),
		paced:          prometheus.NewCounter(counter("http2_reads_paced_total", "Reads of HTTP/2 connections that waited for their turn because the client had sent more than its requests need.")),
		floods:         prometheus.NewCounter(counter("http2_floods_total", "HTTP/2 connections that were closed because the client had sent more than 1 MiB that belonged to no request.")),
	}
	limit := gauge("http_connections_max", "Limit of open HTTP connections (server.max_connections).")
	limit.Set(float64(maxConnections))
	for _, label := range []string{stream.WaitsForRequest, stream.WaitsForBody} {
		m.evicted.WithLabelValues(label)
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "varve", Name: "build_info",
		Help: "Always 1; the labels say what runs."}, []string{"version", "go"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	r.MustRegister(m.requests, m.seconds, m.bytes, m.inFlight, m.connections, m.panics, m.refused, m.evicted, m.failed, m.handshakes, m.acceptFailures, m.largeHeaders, m.paced, m.floods, limit, build,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// newProfilerMetrics returns metrics of the profiler's listener. They are not
// exported: the listener is off by default.
func newProfilerMetrics() *metrics {
	return newMetrics(prometheus.NewRegistry(), "", profilerConnections)
}

// count records a finished request. Labels are routes and the methods that they accept, never text
// of a client.
func (m *metrics) count(rw *response, elapsed time.Duration) {
	route, method := rw.route(), rw.request.Method
	if route == "" {
		route, method = "none", "any"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(rw.status)).Inc()
	m.seconds.WithLabelValues(route).Observe(elapsed.Seconds())
	m.bytes.Add(float64(rw.written))
}
