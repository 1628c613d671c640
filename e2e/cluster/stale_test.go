package cluster

import (
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/originals"
)

// TestRingWithOne: consistency ONE, as in KairosDB's default configuration. One replica
// after the other lacks the writes from while it was down, because there are no hints.
// Queries may then miss points, but no point is permanently lost, hidden or brought
// back: a process that reads enough replicas finds exactly the points that were
// acknowledged and not deleted.
func TestRingWithOne(t *testing.T) {
	if !*ringFlag {
		t.Skip("*** SKIPPED: a ring of three Cassandra nodes with a stale replica; run `make test-cluster`, or this package with -cluster ***")
	}
	s := seed(t)
	nodes := originals.StartCluster(t, originals.ClusterOptions{Nodes: 3, IP: *ipFlag, YAML: yaml + "\nhinted_handoff_enabled: false"})
	for _, c := range []struct {
		write, readBack string
		deletes         bool // while a replica is away
	}{
		{"QUORUM", "QUORUM", true},
		{"ONE", "ALL", false}, // a delete needs all replicas
	} {
		t.Run(c.write, func(t *testing.T) {
			p := &place{t: t, nodes: nodes, keyspace: "stale_" + c.write,
				more: []string{"--cassandra-read-consistency=ONE", "--cassandra-write-consistency=" + c.write}}
			p.stale(t, s, c.readBack, c.deletes)
		})
	}
	t.Run("rollups", func(t *testing.T) {
		p := &place{t: t, nodes: nodes, keyspace: "stale_rollups",
			more: []string{"--cassandra-read-consistency=ONE", "--cassandra-write-consistency=QUORUM"}}
		p.staleRollUps(t)
	})
}

// stale: each node in turn is down while two processes write, and delete if the
// consistency allows it. A third process, which has no caches yet, begins to write
// and to delete when a node has just come back.
func (p *place) stale(t *testing.T, seed uint64, readBack string, deletes bool) {
	old := []*process.Server{p.start(t, t.TempDir()), p.start(t, t.TempDir())}
	for _, v := range old {
		connected(t, v)
	}
	l := p.ledger("stale")
	servers := old
	var loads []*load
	for i, v := range old {
		loads = append(loads, startPaced(t, v, l, seed+uint64(i), 1, 0, slow))
	}
	deleted := 0
	erase := func(by *process.Server) {
		s := span{deleted, deleted + eraPoints}
		await(t, time.Minute, "points to delete", func() error { return written(l, s.to+10*blockMax) })
		handedOver(t, servers...)
		if err := l.erase(t.Context(), by, s); err != nil {
			t.Error(err)
		}
		deleted = s.to
	}
	erase(old[0])
	for i, n := range p.nodes.Nodes {
		n.Kill()
		from := l.all().to
		await(t, time.Minute, "points that a replica lacks", func() error { return written(l, from+eraPoints) })
		if deletes {
			erase(old[i%2])
		}
		handedOver(t, old...)
		n.Start()
		for _, v := range servers {
			connected(t, v)
		}
		fresh := p.start(t, t.TempDir())
		connected(t, fresh)
		servers = append(servers, fresh)
		x := startPaced(t, fresh, l, seed+uint64(10+i), 1, 0, slow)
		await(t, time.Minute, "all nodes are up for all", func() error { return up(t, servers, len(p.nodes.Nodes)) })
		erase(fresh)
		x.end()
	}
	for _, x := range loads {
		x.end()
	}
	for _, v := range servers {
		p.drained(t, v, 2*time.Minute)
		if dropped := stateOf(t, v).Refused; len(dropped) > 0 {
			t.Errorf("samples were dropped: %+v", dropped)
		}
	}
	if err := l.check(t.Context(), servers[0], l.all()); err != nil {
		t.Logf("a question at ONE: %v", err)
	}
	p.readBack(t, []*ledger{l}, "--cassandra-read-consistency="+readBack)
}
