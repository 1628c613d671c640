package server

import (
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	process "github.com/prometheus/client_golang/prometheus/collectors"

	"varve/internal/collectors"
	"varve/internal/gate"
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

// newMetrics registers the figures of a listener of HTTP.
func newMetrics(r prometheus.Registerer, maxConnections int) *metrics {
	set := collectors.Named("varve_server_")
	m := &metrics{
		requests:       set.CounterVec("http_requests_total", "HTTP requests answered.", "route", "method", "code"),
		seconds:        set.HistogramVec("http_request_seconds", "Time from the header of a request to the end of its answer.", []float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60}, "route"),
		bytes:          set.Counter("http_response_bytes_total", "Bytes of answers, before compression by the connection."),
		inFlight:       set.Gauge("http_requests_in_flight", "HTTP requests being answered."),
		connections:    set.Gauge("http_connections", "Open HTTP connections."),
		panics:         set.Counter("panics_total", "Requests that ended in a bug in Varve and were answered with 500."),
		refused:        set.Counter("http_requests_refused_total", "Requests answered 403 because a web page of another origin sent them, or because of a foreign name in Host."),
		evicted:        set.CounterVec("http_connections_evicted_total", "Connections that were closed to make room for new ones (server.max_connections): those without a complete request header, then those whose body arrived most slowly.", "waits_for"),
		handshakes:     set.CounterVec("tls_handshakes_failed_total", "Connections closed because there was no handshake of TLS: not_tls, timeout, ended by the client, certificate not accepted, too_large, other.", "stream", "reason"),
		failed:         set.CounterVec("health_failures_total", "Health checks that failed.", "check"),
		acceptFailures: set.Counter("http_connections_failed_total", "Attempts to accept an HTTP connection that failed, for example because the process may not open more files. The server tries again."),
		largeHeaders:   set.Counter("http_headers_refused_total", "Requests answered 431: their headers were too large or too many."),
		paced:          set.Counter("http2_reads_paced_total", "Reads of HTTP/2 connections that waited for their turn because the client had sent more than its requests need."),
		floods:         set.Counter("http2_floods_total", "HTTP/2 connections that were closed because the client had sent more than 1 MiB that belonged to no request."),
	}
	set.Gauge("http_connections_max", "Limit of open HTTP connections (server.max_connections).").Set(float64(maxConnections))
	for _, label := range []string{stream.WaitsForRequest, stream.WaitsForBody} {
		m.evicted.WithLabelValues(label)
	}
	set.MustRegister(r)
	return m
}

// registerHandshakes registers the handshakes that wait for a processor.
func registerHandshakes(r prometheus.Registerer, turns *gate.Gate) {
	set := collectors.Named("varve_server_")
	set.GaugeFunc("tls_handshakes_waiting", "Handshakes of TLS, of all streams, that wait for a processor; their senders take turns.", func() float64 { return float64(turns.Waiting()) })
	set.MustRegister(r)
}

// registerProcess registers the version of Varve, and the figures of the Go runtime and the process.
func registerProcess(r prometheus.Registerer, version string) {
	set := collectors.Named("varve_")
	set.GaugeVec("build_info", "Always 1; the labels say what runs.", "version", "go").WithLabelValues(version, runtime.Version()).Set(1)
	set.MustRegister(r)
	r.MustRegister(process.NewGoCollector(), process.NewProcessCollector(process.ProcessCollectorOpts{}))
}

// newProfilerMetrics returns metrics of the profiler's listener. They are not
// exported: the listener is off by default.
func newProfilerMetrics() *metrics {
	return newMetrics(prometheus.NewRegistry(), profilerConnections)
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
