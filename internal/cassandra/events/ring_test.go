package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
	"varve/internal/timeline"
)

// TestThreeNodes: over a ring of three the writes of one timeline are spread; and with three
// replicas a node that is killed or paused costs nothing that was acknowledged, while two
// that are away are told, and no page is shorter for it.
func TestThreeNodes(t *testing.T) {
	if !*long {
		t.Skip("needs -cassandra.long: make test-cluster")
	}
	ring := originals.StartCluster(t, originals.ClusterOptions{Nodes: 3, YAML: "commitlog_sync: batch\ncommitlog_sync_period: 0ms"})
	config := cqltest.Config(ring.Addresses()...)
	config.StallAfter = time.Second
	config.ReadTimeout, config.WriteTimeout = 6*time.Second, 4*time.Second
	t.Run("spread", func(t *testing.T) { testSpread(t, config) })
	t.Run("nodes that are away", func(t *testing.T) { testNodesAway(t, config, ring) })
}

func ringKeyspace(t *testing.T, config cql.Config, replicas int, o cql.Options) *cql.Session {
	t.Helper()
	config.Keyspace = cqltest.Name()
	session := cqltest.Open(t, config, o)
	for began := time.Now(); session.State().Nodes < len(config.Hosts); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute { // a ring that has just begun takes a while to know itself
			t.Fatalf("connected with %d nodes of %d", session.State().Nodes, len(config.Hosts))
		}
	}
	if err := session.CreateKeyspace(t.Context(), fmt.Sprintf("{'class': 'SimpleStrategy', 'replication_factor': '%d'}", replicas)); err != nil {
		t.Fatal(err)
	}
	return session
}

// With one replica each write goes to the node that has the partition.
func testSpread(t *testing.T, config cql.Config) {
	registry := prometheus.NewRegistry()
	session := ringKeyspace(t, config, 1, cql.Options{Registerer: registry})
	e := openEngine(t, openShelf(t, session, Options{Node: "a"}), nil)
	name := t.Name()
	if _, err := e.Propose(t.Context(), name, timeline.Proposal{Factor: 6, Size: 10 * second}); err != nil {
		t.Fatal(err)
	}
	before := nodes(t, registry)
	base := time.Now().Add(-time.Hour).UnixMicro()
	for i := range int64(300) {
		var events []timeline.Addressed
		for j := range int64(30) {
			events = append(events, event(base+i*second, fmt.Sprint(i, "-", j), "", name))
		}
		appendAll(t, e, events...)
	}
	var all, least float64
	after := nodes(t, registry)
	for node, n := range after {
		n -= before[node]
		t.Logf("node %s: %.0f statements", node, n)
		all += n
		if least == 0 || n < least {
			least = n
		}
	}
	if len(after) != 3 || least < all/6 {
		t.Errorf("of %.0f statements one of %d nodes got %.0f", all, len(after), least)
	}
}

// nodes counts statements by node.
func nodes(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "varve_cql_node_statements_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "node" {
					counts[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}

// A ledger has what was acknowledged.
type ledger struct {
	mu     sync.Mutex
	acked  map[string]bool
	failed int
}

func testNodesAway(t *testing.T, config cql.Config, ring *originals.Cluster) {
	session := ringKeyspace(t, config, 3, cql.Options{})
	ahead := func() time.Time { return time.Now().Add(300 * time.Millisecond) } // its clock
	a := openEngine(t, openShelf(t, session, Options{Node: "a"}), nil)
	b := openEngine(t, openShelf(t, session, Options{Node: "b", Now: ahead}), func(o *timeline.Options) { o.Now = ahead })
	name := t.Name()
	if _, err := a.Propose(t.Context(), name, timeline.Proposal{Factor: 3, Size: 10 * second}); err != nil {
		t.Fatal(err)
	}
	sub, err := b.Tail(t.Context(), timeline.TailQuery{Timeline: name})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	l := &ledger{acked: map[string]bool{}}
	l.write(t, "all nodes", 5*time.Second, name, a, b)
	ring.Nodes[2].Kill()
	l.write(t, "one killed", 5*time.Second, name, a, b)
	l.check(t, "one killed", a, name)
	ring.Nodes[2].Start()
	ring.Nodes[1].Pause()
	l.write(t, "one paused", 10*time.Second, name, a, b)
	l.check(t, "one paused", b, name)
	if l.failed > 0 {
		t.Errorf("%d events failed although two of three replicas were there", l.failed)
	}
	ring.Nodes[2].Kill()
	for _, e := range []*timeline.Engine{a, b} {
		for range 3 {
			p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{name}})
			if !errors.As(err, new(*store.UnavailableError)) {
				t.Errorf("with two of three replicas away a page has %d events, end %v, %v", len(p.Events), p.End, err)
			}
		}
	}
	ring.Nodes[1].Resume()
	ring.Nodes[2].Start()
	l.check(t, "all are back", a, name)
	l.followed(t, sub)
}

// write appends through both servers for some time.
func (l *ledger) write(t *testing.T, what string, d time.Duration, name string, engines ...*timeline.Engine) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var writers sync.WaitGroup
	before := len(l.acked)
	for w, e := range engines {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%s-%d-%d", what, w, i)
				r, err := e.Append(t.Context(), []timeline.Addressed{event(time.Now().UnixMicro(), id, "", name)})
				l.mu.Lock()
				if err == nil && r.Accepted == 1 {
					l.acked[id] = true
				} else {
					l.failed++
					t.Logf("%s: %s: %v %v", what, id, r.Rejected, err)
				}
				l.mu.Unlock()
			}
		})
	}
	writers.Wait()
	t.Logf("%s: %d events in %v", what, len(l.acked)-before, d)
}

// check reads all pages: every event that was acknowledged is there, in order, once.
func (l *ledger) check(t *testing.T, what string, e *timeline.Engine, name string) {
	t.Helper()
	seen := map[string]bool{}
	q := timeline.Query{Timelines: []string{name}, Limit: 500}
	var last timeline.Position
	for n := 0; ; n++ {
		p, err := e.Read(t.Context(), q)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, f := range p.Events {
			if seen[f.ID] || last.ID != "" && f.Position().Compare(last) >= 0 {
				t.Errorf("%s: %s comes twice or out of order", what, f.ID)
			}
			seen[f.ID], last = true, f.Position()
		}
		if p.End {
			break
		}
		q.Cursor = p.Cursor
	}
	for id := range l.acked {
		if !seen[id] {
			t.Errorf("%s: %s was acknowledged and is missing", what, id)
		}
	}
}

// followed reads what has arrived: every event that was acknowledged, once.
func (l *ledger) followed(t *testing.T, sub *timeline.Subscription) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := map[string]int{}
	for left := len(l.acked); left > 0; {
		some, err := sub.Next(ctx)
		if err != nil {
			t.Fatalf("%d of %d events arrived: %v", len(l.acked)-left, len(l.acked), err)
		}
		for _, e := range some {
			if seen[e.ID]++; seen[e.ID] == 1 && l.acked[e.ID] {
				left--
			}
		}
	}
	var twice []string
	for id, n := range seen {
		if n > 1 {
			twice = append(twice, id)
		}
	}
	if slices.Sort(twice); len(twice) > 0 {
		t.Errorf("arrived twice: %q", twice)
	}
}
