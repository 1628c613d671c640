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
	unregister func()
}

func newMetrics(s *Session, r prometheus.Registerer) (*metrics, error) {
	set := collectors.Named("varve_cql_")
	m := &metrics{
		attempts:   set.CounterVec("attempts_total", "Statements sent to Cassandra, each attempt and each page, by outcome.", "statement", "result"),
		rows:       set.CounterVec("rows_total", "Rows read or written.", "statement"),
		bytes:      set.CounterVec("sent_bytes_total", "Bytes of values sent, approximate.", "statement"),
		seconds:    set.HistogramVec("attempt_seconds", "Time from sending a statement to its answer.", prometheus.ExponentialBuckets(250e-6, 2, 16), "statement"), // 250 us to 8 s
		routed:     set.CounterVec("routed_total", "Statements sent to a node, each attempt and each page: to a replica of the partition, or to another node because the statement has no single partition or no replica could be reached.", "statement", "to"),
		nodes:      set.CounterVec("node_statements_total", "Statements sent, each attempt and each page, by node; answered, or not.", "node", "result"),
		nodeLimit:  set.GaugeVec("node_limit", "Most concurrent statements on a node, once that differs from reads_in_flight or writes_in_flight.", "node", "kind"),
		cuts:       set.CounterVec("limit_cuts_total", "Times that a node's limit of statements in flight was lowered because the node was slow (latency) or did not answer in time (timeout).", "kind", "cause"),
		warnings:   set.Counter("warnings_total", "Warnings that Cassandra sent with answers."),
		reconnects: set.Counter("sessions_total", "Sessions opened with the cluster, the first one included."),
		hedges: set.CounterVec("hedges_total",
			"Slow reads for which a second replica was asked, by result: won (it answered first), lost, failed, or withheld (for lack of room or of such a replica, or because there had been many).", "result"),
	}
	for _, result := range []string{"won", "lost", "failed", "withheld"} {
		m.hedges.WithLabelValues(result) // shown from the start
	}
	set.GaugeFunc("connected", "1 while a node answers.", func() float64 {
		if s.State().Connected {
			return 1
		}
		return 0
	})
	set.GaugeFunc("nodes_up", "Nodes that are connected.", func() float64 { return float64(s.State().Nodes) })
	set.GaugeFunc("nodes_silent", "Connected nodes that have stopped answering.", func() float64 { return float64(s.State().Silent) })
	for k, l := range s.limiters {
		of := set.Labelled(prometheus.Labels{"kind": kindNames[k]})
		of.GaugeFunc("in_flight", "Statements in flight.", func() float64 { return float64(l.load().inFlight) })
		of.GaugeFunc("in_flight_bytes", "Bytes of statements in flight.", func() float64 { return float64(l.load().bytes) })
		of.GaugeFunc("in_flight_limit", "Statements that may be in flight at present: the sum of the limits of the nodes.", func() float64 { return float64(l.load().limit) })
		of.GaugeFunc("waiting", "Statements that wait for others to end.", func() float64 { return float64(l.load().waiting) })
		of.CounterFunc("waits_total", "Statements that had to wait.", func() float64 { return float64(l.load().waits) })
		of.CounterFunc("wait_seconds_total", "Time that statements waited.", func() float64 { return l.load().waited.Seconds() })
	}
	set.CounterFunc("page_waits_total", "Pages of rows that may be very long, such as texts, which had to wait for others.", func() float64 { return float64(s.pages.load().waits) })
	var err error
	m.unregister, err = set.Register(r)
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
