package cql

import (
	"time"

	"varve/internal/collectors"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	attempts   *prometheus.CounterVec   // by statement and result
	seconds    *prometheus.HistogramVec // by statement
	rows       *prometheus.CounterVec   // by statement: read, or written
	bytes      *prometheus.CounterVec   // by statement: sent
	routed     *prometheus.CounterVec   // by statement and where to
	nodes      *prometheus.CounterVec   // by node: attempts
	nodeLimit  *prometheus.GaugeVec     // by node and kind
	cuts       *prometheus.CounterVec   // by kind and cause
	warnings   prometheus.Counter
	reconnects prometheus.Counter
	hedges     *prometheus.CounterVec
	collectors []prometheus.Collector
	unregister func()
}

func newMetrics(s *Session, r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "varve", Subsystem: "cql", Name: name, Help: help}, labels)
	}
	m := &metrics{
		attempts: counter("attempts_total", "Statements sent to Cassandra, each attempt and each page, by outcome.", "statement", "result"),
		rows:     counter("rows_total", "Rows read or written.", "statement"),
		bytes:    counter("sent_bytes_total", "Bytes of values sent, approximate.", "statement"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "varve", Subsystem: "cql", Name: "attempt_seconds", Help: "Time from sending a statement to its answer.",
			Buckets: prometheus.ExponentialBuckets(250e-6, 2, 16), // 250 us to 8 s
		}, []string{"statement"}),
		routed: counter("routed_total", "Statements sent to a node, each attempt and each page: to a replica of the partition, or to another node because the statement has no single partition or no replica could be reached.", "statement", "to"),
		nodes:  counter("node_statements_total", "Statements sent, each attempt and each page, by node; answered, or not.", "node", "result"),
		nodeLimit: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "varve", Subsystem: "cql", Name: "node_limit",
			Help: "Most concurrent statements on a node, once that differs from reads_in_flight or writes_in_flight."}, []string{"node", "kind"}),
		cuts:       counter("limit_cuts_total", "Times that a node's limit of statements in flight was lowered because the node was slow (latency) or did not answer in time (timeout).", "kind", "cause"),
		warnings:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "cql", Name: "warnings_total", Help: "Warnings that Cassandra sent with answers."}),
		reconnects: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "varve", Subsystem: "cql", Name: "sessions_total", Help: "Sessions opened with the cluster, the first one included."}),
	}
	m.hedges = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "varve", Subsystem: "cql", Name: "hedges_total",
		Help: "Slow reads for which a second replica was asked, by result: won (it answered first), lost, failed, or withheld (for lack of room or of such a replica, or because there had been many)."}, []string{"result"})
	for _, result := range []string{"won", "lost", "failed", "withheld"} {
		m.hedges.WithLabelValues(result) // shown from the start
	}
	m.collectors = []prometheus.Collector{m.hedges, m.attempts, m.rows, m.bytes, m.seconds, m.routed, m.nodes, m.nodeLimit, m.cuts, m.warnings, m.reconnects}
	gauge := func(name, help string, labels prometheus.Labels, f func() float64) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "varve", Subsystem: "cql", Name: name, Help: help, ConstLabels: labels}, f))
	}
	total := func(name, help string, labels prometheus.Labels, f func() float64) {
		m.collectors = append(m.collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "varve", Subsystem: "cql", Name: name, Help: help, ConstLabels: labels}, f))
	}
	gauge("connected", "1 while a node answers.", nil, func() float64 {
		if s.State().Connected {
			return 1
		}
		return 0
	})
	gauge("nodes_up", "Nodes that are connected.", nil, func() float64 { return float64(s.State().Nodes) })
	gauge("nodes_silent", "Connected nodes that have stopped answering.", nil, func() float64 { return float64(s.State().Silent) })
	for k, l := range s.limiters {
		labels := prometheus.Labels{"kind": kindNames[k]}
		gauge("in_flight", "Statements in flight.", labels, func() float64 { return float64(l.load().inFlight) })
		gauge("in_flight_bytes", "Bytes of statements in flight.", labels, func() float64 { return float64(l.load().bytes) })
		gauge("in_flight_limit", "Statements that may be in flight at present: the sum of the limits of the nodes.", labels, func() float64 { return float64(l.load().limit) })
		gauge("waiting", "Statements that wait for others to end.", labels, func() float64 { return float64(l.load().waiting) })
		total("waits_total", "Statements that had to wait.", labels, func() float64 { return float64(l.load().waits) })
		total("wait_seconds_total", "Time that statements waited.", labels, func() float64 { return l.load().waited.Seconds() })
	}
	var err error
	m.unregister, err = collectors.Register(r, m.collectors)
	return m, err
}

func (m *metrics) attempt(st *Statement, c class, took time.Duration) {
	m.attempts.WithLabelValues(st.Name, c.String()).Inc()
	if c != classNoHost {
		m.seconds.WithLabelValues(st.Name).Observe(took.Seconds())
	}
}

// written counts the rows of a batch. Finding a counter takes longer than counting, so
// entries of one statement are counted together.
func (m *metrics) written(entries []Entry) {
	for from, to := 0, 0; from < len(entries); from = to {
		st := entries[from].Statement
		for to = from + 1; to < len(entries) && entries[to].Statement == st; {
			to++
		}
		m.rows.WithLabelValues(st.Name).Add(float64(to - from))
	}
}

// sent counts a statement that was sent to a node.
func (m *metrics) sent(h *gocql.HostInfo, a *attempt, answered bool) {
	to, result := "other", "unanswered"
	if _, replica := a.node(); replica {
		to = "replica"
	}
	if answered {
		result = "answered"
	}
	m.routed.WithLabelValues(a.statement, to).Inc()
	m.nodes.WithLabelValues(h.ConnectAddressAndPort(), result).Inc()
}

// paced records the limit of a node.
func (m *metrics) paced(h *gocql.HostInfo, k kind, limit int, why cause) {
	m.nodeLimit.WithLabelValues(h.ConnectAddressAndPort(), kindNames[k]).Set(float64(limit))
	if why != uncut {
		m.cuts.WithLabelValues(kindNames[k], string(why)).Inc()
	}
}

// forget drops the metrics of a node that left the ring.
func (m *metrics) forget(h *gocql.HostInfo) {
	m.nodes.DeletePartialMatch(prometheus.Labels{"node": h.ConnectAddressAndPort()})
	m.nodeLimit.DeletePartialMatch(prometheus.Labels{"node": h.ConnectAddressAndPort()})
}
