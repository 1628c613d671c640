package cql_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
)

// load writes and reads rows with some workers until stopped, and keeps what was
// acknowledged.
type load struct {
	name    string // begins its keys
	t       *testing.T
	s       *cql.Session
	stop    atomic.Bool
	wg      sync.WaitGroup
	written atomic.Int64
	errors  atomic.Int64
	slowest atomic.Int64 // ns, since the last look

	mu    sync.Mutex
	acked [][2]string // key, column
	last  error
}

func startLoad(t *testing.T, s *cql.Session, name string, workers int) *load {
	l := &load{name: name, t: t, s: s}
	for w := range workers {
		l.wg.Go(func() { l.work(w) })
	}
	return l
}

func (l *load) work(worker int) {
	for i := 0; !l.stop.Load(); i++ {
		key, column := fmt.Sprintf("%s%d-%d", l.name, worker, i/20), fmt.Sprint(i)
		start := time.Now()
		err := l.s.Exec(l.t.Context(), insert, 1000, []byte(key), []byte(column), []byte("v"))
		if err == nil && i%5 == 0 {
			rows := l.s.Query(l.t.Context(), selectAll, []byte(key))
			n := 0
			for rows.Scan(nil, nil, nil) {
				n++
			}
			if err = rows.Close(); err == nil && n != i%20+1 && l.errors.Load() == 0 {
				err = fmt.Errorf("%s has %d rows, want %d", key, n, i%20+1)
			}
		}
		took := time.Since(start)
		for old := l.slowest.Load(); int64(took) > old && !l.slowest.CompareAndSwap(old, int64(took)); old = l.slowest.Load() {
		}
		if err != nil {
			l.errors.Add(1)
			l.mu.Lock()
			l.last = err
			l.mu.Unlock()
			continue
		}
		l.written.Add(1)
		l.mu.Lock()
		l.acked = append(l.acked, [2]string{key, column})
		l.mu.Unlock()
	}
}

// look tells what happened in the time d, and forgets it.
func (l *load) look(what string, d time.Duration) (written, failed int64, slowest time.Duration) {
	l.slowest.Store(0)
	before, errorsBefore := l.written.Load(), l.errors.Load()
	time.Sleep(d)
	written, failed, slowest = l.written.Load()-before, l.errors.Load()-errorsBefore, time.Duration(l.slowest.Load())
	l.mu.Lock()
	last := l.last
	l.last = nil
	l.mu.Unlock()
	l.t.Logf("%-34s %6.0f writes/s, %d errors, slowest %v; last error: %v", what, float64(written)/d.Seconds(), failed, slowest.Round(time.Millisecond), last)
	return written, failed, slowest
}

// check reads all that was acknowledged.
func (l *load) check() {
	l.t.Helper()
	l.stop.Store(true)
	l.wg.Wait()
	partitions := make(map[string]map[string]bool)
	for _, row := range l.acked {
		if partitions[row[0]] == nil {
			partitions[row[0]] = make(map[string]bool)
		}
		partitions[row[0]][row[1]] = true
	}
	lost := 0
	for key, columns := range partitions {
		rows := l.s.Query(l.t.Context(), selectAll, []byte(key))
		var column cql.Raw
		for rows.Scan(&column, nil, nil) {
			delete(columns, string(column))
		}
		if err := rows.Close(); err != nil {
			l.t.Fatal(err)
		}
		lost += len(columns)
	}
	l.t.Logf("%d rows acknowledged, %d lost", len(l.acked), lost)
	if lost > 0 {
		l.t.Errorf("%d acknowledged rows are lost", lost)
	}
}

// checkPlaces: where each node holds a part of the keys alone, those of one node
// have one place.
func checkPlaces(t *testing.T, config cql.Config) {
	t.Helper()
	config.Keyspace += "_places"
	s := cqltest.Open(t, config, cql.Options{})
	if err := s.CreateKeyspace(t.Context(), "{'class': 'SimpleStrategy', 'replication_factor': '1'}"); err != nil {
		t.Fatal(err)
	}
	cqltest.Must(t, s, table)
	until(t, time.Minute, "connected with all nodes", func() bool { return s.State().Nodes == 3 })
	sets := map[string]string{} // by the node that its token says
	for i := range 60 {
		key := []byte(fmt.Sprint("key", i))
		if err := s.Exec(t.Context(), insert, 1000, key, []byte("c"), []byte("v")); err != nil {
			t.Fatal(err)
		}
		var token int64
		if _, err := s.One(t.Context(), &cql.Statement{Name: "token", Text: "SELECT token(key) FROM t WHERE key = ? LIMIT 1"}, []any{key}, &token); err != nil {
			t.Fatal(err)
		}
		// The ring is cut into equal parts: see scripts/cassandra.sh.
		owner := 0
		for node := 1; node <= 3; node++ {
			if end := -9223372036854775807 + int64(node)*2*(9223372036854775807/3) - 1; token <= end {
				owner = node
				break
			}
		}
		set := s.ReplicaSet(cql.Entry{Statement: keyed, Args: []any{key}})
		for other, at := range sets {
			if (at == set) != (other == fmt.Sprint(owner)) {
				t.Fatalf("a key of node %d has the replica set %q, one of node %s has %q", owner, set, other, at)
			}
		}
		sets[fmt.Sprint(owner)] = set
	}
	if len(sets) < 3 || sets[""] != "" {
		t.Errorf("sets: %v", sets)
	}
}

var keyed = &cql.Statement{Name: "insert", Text: insert.Text, KeyArgs: 1}

// checkNodes: whichever node answers, it and all others are listed.
func checkNodes(t *testing.T, s *cql.Session) {
	t.Helper()
	until(t, time.Minute, "all nodes have heard of all", func() bool {
		nodes, err := s.Nodes(t.Context())
		return err == nil && len(nodes) == 3
	})
	for range 30 {
		nodes, err := s.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		addresses := map[string]bool{}
		for _, n := range nodes {
			addresses[n.Address] = true
		}
		if len(addresses) != 3 {
			t.Fatalf("of three nodes %d are listed: %v", len(addresses), nodes)
		}
	}
}

// TestThreeNodes: one of three nodes is killed, paused, restarted, and all of
// them, under load with replication 3 and LOCAL_QUORUM.
func TestThreeNodes(t *testing.T) {
	needLong(t)
	cluster := originals.StartCluster(t, originals.ClusterOptions{Nodes: 3, YAML: "commitlog_sync: batch\ncommitlog_sync_period: 0ms"})
	config := cqltest.Config(cluster.Addresses()...)
	config.StallAfter = time.Second
	config.ReadTimeout, config.WriteTimeout = 6*time.Second, 4*time.Second
	registry := prometheus.NewRegistry()
	s := cqltest.Open(t, config, cql.Options{Registerer: registry})
	if err := s.CreateKeyspace(t.Context(), "{'class': 'SimpleStrategy', 'replication_factor': '3'}"); err != nil {
		t.Fatal(err)
	}
	cqltest.Must(t, s, table)
	until(t, time.Minute, "connected with all nodes", func() bool { return s.State().Nodes == 3 })
	checkPlaces(t, config)
	checkNodes(t, s)
	l := startLoad(t, s, "w", 16)
	l.look("all nodes", 5*time.Second)

	none := func(what string, failed int64, slowest, limit time.Duration) {
		t.Helper()
		if failed > 0 || slowest > limit {
			t.Errorf("%s: %d errors, slowest statement %v, want none and at most %v", what, failed, slowest, limit)
		}
	}
	cluster.Nodes[2].Kill()
	_, failed, slowest := l.look("one node killed", 5*time.Second)
	none("one node killed", failed, slowest, 6*time.Second)
	cluster.Nodes[2].Start()
	_, failed, slowest = l.look("started again", 10*time.Second)
	none("started again", failed, slowest, 6*time.Second)
	until(t, time.Minute, "connected with all nodes", func() bool { return s.State().Nodes == 3 })

	// The pause is noticed by the other nodes after some 20 s, here by
	// stall_after: only what was in flight at that node waits that long.
	cluster.Nodes[1].Pause()
	_, failed, slowest = l.look("one node paused, first 3 s", 3*time.Second)
	none("one node paused", failed, slowest, 5*time.Second)
	written, failed, slowest := l.look("one node paused, next 10 s", 10*time.Second)
	none("one node paused for some time", failed, slowest, 5*time.Second)
	if written < 200 {
		t.Errorf("%d writes in 10 s beside a paused node", written)
	}
	// Its limit was cut, not below the floor, and grows again when it answers.
	node := map[string]string{"node": cluster.Nodes[1].Address, "kind": "write", "result": "answered"}
	limit := func() float64 { return metric(t, registry, "varve_cql_node_limit", node) }
	answered := metric(t, registry, "varve_cql_node_statements_total", node)
	cut := limit()
	if !(cut >= 4 && cut < float64(config.WritesInFlight)) {
		t.Errorf("the limit of the paused node is %v, want 4 to less than %d", cut, config.WritesInFlight)
	}
	cluster.Nodes[1].Resume()
	_, failed, slowest = l.look("resumed", 10*time.Second)
	none("resumed", failed, slowest, 5*time.Second)
	until(t, time.Minute, "no node silent", func() bool { return s.State().Silent == 0 && s.State().Nodes == 3 })
	// With many at once the limit is reached, and so grows.
	more := startLoad(t, s, "more", 64)
	until(t, time.Minute, "given more again", func() bool { return limit() > cut })
	more.check()
	if n := metric(t, registry, "varve_cql_node_statements_total", node); n < answered+100 {
		t.Errorf("the resumed node answered %v statements, before the pause's end it was %v", n, answered)
	}
	t.Logf("limit of the paused node: cut to %v, later %v", cut, limit())

	// Two killed: what is told is first no answer in time, then too few
	// replicas; the session stays connected.
	timeouts := func() float64 {
		return metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": "insert", "result": "timeout"})
	}
	before := timeouts()
	cluster.Nodes[1].Kill()
	cluster.Nodes[2].Kill()
	_, failed, _ = l.look("two nodes killed", 30*time.Second)
	if failed == 0 {
		t.Error("no error with one replica of three")
	}
	if n := timeouts(); !(n > 0) || n == before {
		t.Errorf("%v timeouts of writes before two nodes were killed, and after", n)
	}
	err := s.Exec(t.Context(), insert, 1000, []byte("k"), []byte("c"), []byte("v"))
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "too few replicas") {
		t.Errorf("one replica of three: %v", err)
	}
	cluster.Nodes[0].Kill()
	l.look("all nodes killed", 5*time.Second)
	until(t, 30*time.Second, "away", func() bool { return !s.State().Connected })
	t.Log(s.State().Reason)
	var wg sync.WaitGroup
	cluster.Nodes[0].Start()
	for _, n := range cluster.Nodes[1:] {
		wg.Go(n.Start)
	}
	wg.Wait()
	until(t, 2*time.Minute, "all back", func() bool {
		return s.State().Connected && s.State().Nodes == 3 && s.Exec(t.Context(), insert, 1000, []byte("k"), []byte("c"), []byte("v")) == nil
	})
	_, failed, _ = l.look("all nodes back", 5*time.Second)
	if failed > 0 {
		t.Errorf("%d errors after all nodes are back", failed)
	}
	l.check()
	t.Logf("limit of writes at the end: %v, cut %v times after timeouts", metric(t, registry, "varve_cql_in_flight_limit", map[string]string{"kind": "write"}),
		metric(t, registry, "varve_cql_limit_cuts_total", map[string]string{"kind": "write", "cause": "timeout"}))

	// Nodes that cannot learn of a change of the schema do not agree. One that
	// is paused counts until it is known to be down.
	defer cql.SetSchemaAgreement(2 * time.Second)()
	cluster.Nodes[2].Pause()
	err = s.Change(t.Context(), &cql.Statement{Name: "make", Text: "CREATE TABLE IF NOT EXISTS t2 (a int PRIMARY KEY)"})
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "do not agree about the schema") {
		t.Errorf("changing the schema beside a paused node: %v", err)
	}
	t.Log(err)
	cluster.Nodes[2].Resume()
	until(t, time.Minute, "agreed", func() bool {
		return s.Change(t.Context(), &cql.Statement{Name: "make", Text: "CREATE TABLE IF NOT EXISTS t2 (a int PRIMARY KEY)"}) == nil
	})
}
