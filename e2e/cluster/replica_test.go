package cluster

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
)

// replicaShare is how many of the statements about one partition have to go to a
// replica. The rest are those sent while a connection is being made.
const replicaShare = 0.95

// replica: with one copy of each partition on three nodes, statements and batches
// go to the node that has it. First by a session, where the owner is computed from
// the token that Cassandra tells and the ring's tokens; then by a server, which
// counts where it sends each of its statements.
func (p *place) replica(t *testing.T, seed uint64) {
	t.Run("session", p.owners)
	t.Run("server", func(t *testing.T) { p.serverReplicas(t, seed) })
}

// owner is the node that has the token first: node i of n has the i-th of n equal
// parts of the ring, as scripts/cassandra.sh makes it.
func (p *place) owner(token int64) int {
	n := len(p.nodes.Nodes)
	for i := range n {
		if token <= -math.MaxInt64+int64(i+1)*2*(math.MaxInt64/int64(n))-1 {
			return i
		}
	}
	return 0
}

func (p *place) owners(t *testing.T) {
	config := cqltest.Config(p.nodes.Addresses()...)
	registry := prometheus.NewRegistry()
	s := cqltest.Keyspace(t, config, cql.Options{Registerer: registry})
	cqltest.Must(t, s, "CREATE TABLE single (key blob, c int, PRIMARY KEY (key, c))",
		"CREATE TABLE composite (metric text, at timestamp, c int, PRIMARY KEY ((metric, at), c))")
	await(t, time.Minute, "all nodes connected", func() error {
		if n := s.State().Nodes; n != len(p.nodes.Nodes) {
			return fmt.Errorf("%d nodes", n)
		}
		return nil
	})
	ctx := t.Context()
	for _, c := range []struct {
		table, where string
		key          func(i int) []any
	}{
		{"single", "key = ?", func(i int) []any { return []any{fmt.Appendf(nil, "key %d", i)} }},
		{"composite", "metric = ? AND at = ?", func(i int) []any { return []any{fmt.Sprint("metric ", i%7), int64(i)} }},
	} {
		columns := strings.NewReplacer(" = ?", "", " AND ", ", ").Replace(c.where)
		marks := strings.Repeat("?, ", strings.Count(columns, ",")+1)
		put := &cql.Statement{Name: "put_" + c.table, Text: fmt.Sprintf("INSERT INTO %s (%s, c) VALUES (%s?)", c.table, columns, marks)}
		get := &cql.Statement{Name: "get_" + c.table, Text: fmt.Sprintf("SELECT c FROM %s WHERE %s", c.table, c.where)}
		where := &cql.Statement{Name: "token_" + c.table, Text: fmt.Sprintf("SELECT token(%s) FROM %s WHERE %s LIMIT 1", columns, c.table, c.where)}
		owned := make([][]int, len(p.nodes.Nodes)) // numbers of keys by owner
		for i := range 90 {
			if err := s.Exec(ctx, put, 1, append(c.key(i), 0)...); err != nil {
				t.Fatal(err)
			}
			var token int64
			if ok, err := s.One(ctx, where, c.key(i), &token); !ok || err != nil {
				t.Fatal(ok, err)
			}
			n := p.owner(token)
			owned[n] = append(owned[n], i)
		}
		for kind, do := range map[string]func(key []any) error{
			"statements": func(key []any) error { return s.Exec(ctx, put, 1, append(key, 1)...) },
			"batches": func(key []any) error {
				var b []cql.Entry
				for i := range 5 {
					b = append(b, cql.Entry{Statement: put, Args: append(slices.Clone(key), i)})
				}
				return s.Batch(ctx, 1, b)
			},
			"questions": func(key []any) error {
				_, err := s.One(ctx, get, key, nil)
				return err
			},
		} {
			right, all := 0.0, 0.0
			for n, keys := range owned {
				if len(keys) < 10 {
					t.Fatalf("of 90 keys node %d has %d: the ring is not as it should be", n, len(keys))
				}
				before := sentTo(t, registry)
				for _, i := range keys {
					if err := do(c.key(i)); err != nil {
						t.Fatal(err)
					}
				}
				for address, count := range sentTo(t, registry) {
					count -= before[address]
					all += count
					if address == p.nodes.Nodes[n].Address {
						right += count
					}
				}
			}
			t.Logf("%s, %s: %.0f of %.0f sent to the owner", c.table, kind, right, all)
			if all < 90 || right < replicaShare*all {
				t.Errorf("%s, %s: %.0f of %.0f sent to the owner, want nearly all", c.table, kind, right, all)
			}
		}
	}
}

// sentTo is how many statements each node was sent, by its address.
func sentTo(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sent := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "varve_cql_node_statements_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "node" {
					sent[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sent
}

// ofNoPartition are statements of the server that have no one partition, and so
// no replica of it, or read tables in which each node has its own rows.
var ofNoPartition = []string{"ping", "read_any_legacy_key", "probe_tag_indexed", "read_clock", "read_cluster_name", "read_node_id", "read_nodes"}

func (p *place) serverReplicas(t *testing.T, seed uint64) {
	v := p.start(t, t.TempDir())
	connected(t, v)
	l := p.ledger("replica")
	x := startLoad(t, v, l, seed, 2, 2)
	x.look("one copy", 8*time.Second).quiet(t, "one copy")
	x.end()
	p.drained(t, v, time.Minute)
	if err := l.erase(t.Context(), v, span{0, eraPoints}); err != nil {
		t.Error(err)
	}
	m, err := v.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byStatement := make(map[string][2]float64) // to a replica, to another node
	for name, value := range m {
		labels, ok := strings.CutPrefix(name, "varve_cql_routed_total{")
		if !ok {
			continue
		}
		statement, to := label(labels, "statement"), label(labels, "to")
		n := byStatement[statement]
		if to == "replica" {
			n[0] += value
		} else {
			n[1] += value
		}
		byStatement[statement] = n
	}
	replicas, others := 0.0, 0.0
	var lines []string
	for statement, n := range byStatement {
		lines = append(lines, fmt.Sprintf("%s %.0f+%.0f", statement, n[0], n[1]))
		if slices.Contains(ofNoPartition, statement) || strings.HasPrefix(statement, "create_") {
			continue
		}
		replicas, others = replicas+n[0], others+n[1]
		if n[1] > 3 && n[1] > n[0] {
			t.Errorf("%s: %.0f sent to a replica and %.0f to another node", statement, n[0], n[1])
		}
	}
	sort.Strings(lines)
	t.Logf("to a replica + to another node: %s", strings.Join(lines, ", "))
	t.Logf("%.0f of %.0f sent to a replica", replicas, replicas+others)
	if replicas < 100 || replicas < replicaShare*(replicas+others) {
		t.Errorf("%.0f of %.0f statements sent to a replica, want nearly all", replicas, replicas+others)
	}
	p.verify(t, []*ledger{l}, v)
}

// label finds a label's value in the text of a metric.
func label(text, name string) string {
	_, rest, _ := strings.Cut(text, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
