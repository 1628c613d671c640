package cluster

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/originals"
)

// seed returns the seed of a test, and logs it.
func seed(t *testing.T) uint64 {
	n := *seedFlag
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("seed: -cluster.seed=%d", n)
	return n
}

// yaml configures nodes that may all be killed at once: acknowledged writes are on
// disk. The dynamic snitch is on, as by default and in production: without it, a
// coordinator would query a node that has just died for the 20 s until the node is
// known to be down. Other tests turn it off, so that reads always take the same
// way; with one node, or if no node dies, nothing else depends on it.
const yaml = "commitlog_sync: batch\ncommitlog_sync_period: 0ms\ndynamic_snitch: true"

// TestOneNode: Cassandra is paused, is killed with kill -9, or has never been
// started, and varve is killed meanwhile.
func TestOneNode(t *testing.T) {
	if !*ringFlag {
		t.Skip("*** SKIPPED: outages of Cassandra, four minutes; run `make test-cluster`, or this package with -cluster ***")
	}
	s := seed(t)
	nodes := originals.StartCluster(t, originals.ClusterOptions{Nodes: 1, YAML: yaml})
	p := func(keyspace string) *place { return &place{t: t, nodes: nodes, keyspace: keyspace} }
	n := nodes.Nodes[0]
	t.Run("acknowledge", func(t *testing.T) { p("acknowledge").acknowledge(t, n.Pause, n.Resume) })
	t.Run("full", func(t *testing.T) { p("full").full(t, n.Pause, n.Resume) })
	t.Run("twice", func(t *testing.T) { p("twice").twice(t, n.Kill, n.Start) })
	t.Run("away", func(t *testing.T) {
		p("away").away(t, s, n.Kill, func() { p("absent").absent(t, s, n.Start) })
	})
}

// TestRing does what TestOneNode does to all nodes of a ring of three, and other
// things to one of them. Replication is 3, consistency LOCAL_QUORUM.
func TestRing(t *testing.T) {
	if !*ringFlag {
		t.Skip("*** SKIPPED: a ring of three Cassandra nodes; run `make test-cluster`, or this package with -cluster ***")
	}
	s := seed(t)
	nodes := originals.StartCluster(t, originals.ClusterOptions{Nodes: 3, YAML: yaml, IP: *ipFlag})
	p := func(keyspace string) *place { return &place{t: t, nodes: nodes, keyspace: keyspace} }
	all := func(f func(*originals.Node)) func() {
		return func() {
			for _, n := range nodes.Nodes {
				f(n)
			}
		}
	}
	// The first node must run before the others ask it for the schema.
	start := func() {
		nodes.Nodes[0].Start()
		var wg sync.WaitGroup
		for _, n := range nodes.Nodes[1:] {
			wg.Go(n.Start)
		}
		wg.Wait()
	}
	t.Run("replica", func(t *testing.T) {
		one := p("replica")
		one.replicas = 1
		one.replica(t, s)
	})
	t.Run("node", func(t *testing.T) { p("node").oneNode(t, s) })
	t.Run("several", func(t *testing.T) { p("several").several(t, s) })
	t.Run("acknowledge", func(t *testing.T) {
		p("acknowledge").acknowledge(t, all((*originals.Node).Pause), all((*originals.Node).Resume))
	})
	t.Run("full", func(t *testing.T) { p("full").full(t, all((*originals.Node).Pause), all((*originals.Node).Resume)) })
	t.Run("away", func(t *testing.T) {
		p("away").away(t, s, all((*originals.Node).Kill), func() { p("absent").absent(t, s, start) })
	})
}

// oneNode: one node of three is killed, started, paused, resumed and restarted
// under load, and clients notice nothing.
func (p *place) oneNode(t *testing.T, seed uint64) {
	v := p.start(t, t.TempDir())
	connected(t, v)
	l := p.ledger("node")
	x := startLoad(t, v, l, seed, 2, 2)
	steps := []struct {
		what string
		do   func()
		then time.Duration
	}{
		{"all nodes", func() {}, 8 * time.Second},
		{"one killed", p.nodes.Nodes[2].Kill, 8 * time.Second},
		{"started again", p.nodes.Nodes[2].Start, 10 * time.Second},
		{"another paused", p.nodes.Nodes[1].Pause, 30 * time.Second},
		{"resumed", p.nodes.Nodes[1].Resume, 10 * time.Second},
		{"the first restarted", p.nodes.Nodes[0].Restart, 10 * time.Second},
	}
	for _, step := range steps {
		x.during(step.what, func() {
			step.do()
			time.Sleep(step.then)
		}).quiet(t, step.what)
	}
	x.end()
	p.verify(t, []*ledger{l}, v)
}

// away: all nodes go down and come back. Writes continue.
func (p *place) away(t *testing.T, seed uint64, away, back func()) {
	v := p.start(t, t.TempDir())
	connected(t, v)
	l := p.ledger("away")
	x := startLoad(t, v, l, seed, 2, 1)
	x.look("there", 2*time.Second).quiet(t, "there")
	away()
	x.look("away", 6*time.Second).writesQuiet(t, "away")
	wantDegraded(t, v, http.StatusNoContent)
	wantQuestionsFail(t, v, l)
	x.during("away, then coming back", back).writesQuiet(t, "away, then coming back")
	x.during("until all is well", func() { connected(t, v) })
	x.look("back", 3*time.Second).quiet(t, "back")
	x.end()
	p.verify(t, []*ledger{l}, v)
}

// absent: no node has ever run when varve starts, accepts points, is killed and
// restarted, twice. The keyspace is created when the nodes start.
func (p *place) absent(t *testing.T, seed uint64, come func()) {
	dir := t.TempDir()
	l := p.ledger("absent")
	v := p.start(t, dir)
	for range 3 {
		x := startLoad(t, v, l, seed, 2, 0)
		x.look("never there", time.Second).writesQuiet(t, "never there")
		v.Ending.Store(true)
		v.Kill()
		x.end()
		v = p.start(t, dir)
	}
	wantDegraded(t, v, http.StatusNoContent)
	t.Logf("%d points wait", l.count(stored))
	come()
	connected(t, v)
	p.verify(t, []*ledger{l}, v)
	// Killed while it drains, under load.
	x := startLoad(t, v, l, seed, 2, 0)
	for range 3 {
		x.look("there", 500*time.Millisecond)
		v.Kill()
		x.end()
		v = p.start(t, dir)
		x = startLoad(t, v, l, seed, 2, 0)
	}
	x.end()
	connected(t, v)
	p.verify(t, []*ledger{l}, v)
}

// full: the spool reaches its bound while the nodes are paused, refuses points,
// and accepts them again afterwards.
func (p *place) full(t *testing.T, halt, goOn func()) {
	v := p.start(t, t.TempDir(), "--cassandra-spool-max-bytes=1MiB", "--tune=cassandra.spool.log.segment_bytes=64KiB")
	connected(t, v)
	l := p.ledger("full")
	l.padding = 2000
	if err := l.post(t.Context(), v, l.next(100)); err != nil {
		t.Fatal(err)
	}
	p.drained(t, v, time.Minute)
	halt()
	halted := true
	defer func() {
		if halted {
			goOn()
		}
	}()
	wantQuestionsFail(t, v, l)
	var refusal error
	for refusal == nil && len(l.points) < 20_000 {
		refusal = l.post(t.Context(), v, l.next(50))
	}
	why := stateOf(t, v).Refusing
	if !busy(refusal) || !strings.Contains(why, "spool.max_bytes") {
		t.Fatalf("after %d points: %v; the server says %q, want that it names the bound", len(l.points), refusal, why)
	}
	t.Logf("refused after %d points: %s", len(l.points), why)
	wantDegraded(t, v, http.StatusInternalServerError)
	if err := l.post(t.Context(), v, l.next(50)); !busy(err) {
		t.Errorf("a full spool is given more: %v, want 503", err)
	}
	goOn()
	halted = false
	began := time.Now()
	await(t, time.Minute, "taken again", func() error { return l.post(t.Context(), v, l.next(50)) })
	t.Logf("taken again %v after the nodes went on", time.Since(began).Round(100*time.Millisecond))
	await(t, time.Minute, "healthy", func() error {
		_, err := v.Want(t.Context(), http.StatusNoContent, "GET", "/api/v1/health/check", "")
		return err
	})
	p.verify(t, []*ledger{l}, v)
}

// acknowledge: with acknowledge: store, another process sees acknowledged
// points at once, and no point is acknowledged while the nodes are paused.
func (p *place) acknowledge(t *testing.T, halt, goOn func()) {
	v := p.start(t, t.TempDir(), "--cassandra-spool-acknowledge=store", "--tune=cassandra.spool.acknowledge_timeout=3s")
	other := p.start(t, t.TempDir(), "--tune=cassandra.read.chunk_cache_age=0s")
	connected(t, v)
	connected(t, other)
	l := p.ledger("acknowledge")
	slowest := time.Duration(0)
	for range 20 {
		s := l.next(20)
		began := time.Now()
		if err := l.post(t.Context(), v, s); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
		// The other process may use its cached list of series for a second.
		if err := l.check(t.Context(), other, s); err != nil {
			time.Sleep(1100 * time.Millisecond)
			if err := l.check(t.Context(), other, s); err != nil {
				t.Fatalf("acknowledged, and not in Cassandra: %v", err)
			}
		}
	}
	t.Logf("20 writes acknowledged by Cassandra, the slowest after %v", slowest.Round(time.Millisecond))
	halt()
	began := time.Now()
	err := l.post(t.Context(), v, l.next(20))
	took := time.Since(began)
	goOn()
	if !busy(err) || took < 2*time.Second {
		t.Errorf("nodes that stand still: %v after %v, want 503 after acknowledge_timeout", err, took)
	}
	m, err := v.Metrics(t.Context())
	if refused := m[`varve_spool_refused_batches_total{cluster="write_cluster",reason="acknowledge_timeout"}`]; err != nil || refused == 0 {
		t.Errorf("%v refused batches are counted (%v)", refused, err)
	}
	t.Logf("nodes that stand still: 503 after %v", took.Round(100*time.Millisecond))
	await(t, time.Minute, "acknowledged again", func() error { return l.post(t.Context(), v, l.next(20)) })
	p.verify(t, []*ledger{l}, v)
}

// busy reports whether a write was answered with 503. That answer has no body:
// one would make KairosDB's Java client lose a connection.
func busy(err error) bool {
	var status *process.StatusError
	return errors.As(err, &status) && status.Got == http.StatusServiceUnavailable
}
