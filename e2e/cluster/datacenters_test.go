package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/originals"
)

// TestRingOfDatacenters: three nodes in one data centre, east, one in another, west, and
// a varve in each, which write the same series. Either data centre goes down under
// load, and clients of the other one notice nothing.
func TestRingOfDatacenters(t *testing.T) {
	if !*ringFlag {
		t.Skip("*** SKIPPED: a ring of four Cassandra nodes in two data centres; run `make test-cluster`, or this package with -cluster ***")
	}
	s := seed(t)
	nodes := originals.StartCluster(t, originals.ClusterOptions{Nodes: 4, YAML: yaml, IP: *ipFlag, Datacenters: []string{"east", "east", "east", "west"}})
	for _, consistency := range []string{"LOCAL_QUORUM", "LOCAL_ONE"} {
		t.Run(consistency, func(t *testing.T) {
			at := func(datacenter string, nodes ...*originals.Node) *site {
				return &site{&place{t: t, keyspace: "datacenters_" + consistency, nodes: &originals.Cluster{Nodes: nodes},
					replication: "{'class': 'NetworkTopologyStrategy', 'east': '3', 'west': '1'}",
					more:        []string{"--cassandra-datacenter=" + datacenter, "--cassandra-read-consistency=" + consistency, "--cassandra-write-consistency=" + consistency},
				}, nil, nil, consistency == "LOCAL_QUORUM"}
			}
			datacenters(t, s, at("east", nodes.Nodes[:3]...), at("west", nodes.Nodes[3]))
		})
	}
}

// A site is a varve in a data centre.
type site struct {
	*place
	server *process.Server
	load   *load // load on a metric that only this site writes
	exact  bool  // a query finds all points that were acknowledged before
}

func (a *site) begin(t *testing.T, seed uint64, metric string) {
	a.server = a.start(t, t.TempDir())
	connected(t, a.server)
	readers := 0
	if a.exact {
		readers = 1
	}
	a.load = startPaced(t, a.server, a.ledger(metric), seed, 1, readers, slow)
}

// quiet fails the test if clients of this site have noticed anything.
func (a *site) quiet(t *testing.T, what string, met tally) {
	t.Helper()
	if a.exact {
		met.quiet(t, what)
	} else {
		met.writesQuiet(t, what)
	}
}

// while does something to one site, and then waits. Meanwhile clients of the other
// site must notice nothing, and clients of this site only that queries fail.
func (a *site) while(t *testing.T, what string, other *site, do func(), then time.Duration) {
	t.Helper()
	a.load.reset()
	other.quiet(t, what, other.load.during(what+", there", func() {
		do()
		pass(t, then)
	}))
	a.load.told(what+", here", then).writesQuiet(t, what)
}

func datacenters(t *testing.T, seed uint64, east, west *site) {
	east.begin(t, seed, "east")
	west.begin(t, seed+1, "west")
	shared := east.ledger("shared")
	both := []*load{startPaced(t, east.server, shared, seed+2, 1, 0, slow), startPaced(t, west.server, shared, seed+3, 1, 0, slow)}
	ledgers := []*ledger{east.load.ledger, west.load.ledger, shared}
	w := west.nodes.Nodes[0]

	west.while(t, "all nodes", east, func() {}, 5*time.Second)
	west.while(t, "west killed", east, w.Kill, 6*time.Second)
	wantDegraded(t, west.server, http.StatusNoContent)
	refused(t, shared, east.server, west.server)
	west.while(t, "west started again", east, w.Start, 3*time.Second)
	connected(t, west.server)
	if east.exact {
		comeAndGo(t, east, west)
	}

	// Each site deletes points that both wrote, while both write.
	for i, a := range []*site{east, west, east, west} {
		s := span{i * eraPoints, (i + 1) * eraPoints}
		if shared.all().to < s.to {
			t.Fatalf("only %d points were written", shared.all().to)
		}
		handedOver(t, east.server, west.server)
		await(t, time.Minute, "a delete in all data centres", func() error { return shared.erase(t.Context(), a.server, s) })
	}
	for _, x := range append(both, east.load, west.load) {
		x.end()
	}
	for _, a := range []*site{east, west} {
		a.drained(t, a.server, 2*time.Minute)
		if dropped := stateOf(t, a.server).Refused; len(dropped) > 0 {
			t.Errorf("samples were dropped: %+v", dropped)
		}
	}
	compareSites(t, ledgers, east, west)
}

// comeAndGo does all other things to each data centre.
func comeAndGo(t *testing.T, east, west *site) {
	e, w := east.nodes.Nodes, west.nodes.Nodes[0]
	west.while(t, "west paused", east, w.Pause, 10*time.Second)
	wantDegraded(t, west.server, http.StatusNoContent)
	w.Resume()
	connected(t, west.server)
	east.while(t, "one of east killed", west, e[1].Kill, 8*time.Second)
	east.while(t, "and started again", west, e[1].Start, 5*time.Second)
	east.while(t, "east paused", west, func() { onAll(e, (*originals.Node).Pause) }, 10*time.Second)
	wantDegraded(t, east.server, http.StatusNoContent)
	onAll(e, (*originals.Node).Resume)
	connected(t, east.server)
}

// compareSites reads all points through each data centre, three times. First with the
// usual consistency: writes that a killed node had accepted but not passed on to the
// other data centre arrive there only by a repair of Cassandra. Then from all
// replicas, which repairs the rows that are read. After that, each data centre alone
// must have all points.
func compareSites(t *testing.T, ledgers []*ledger, sites ...*site) {
	t.Helper()
	for _, a := range sites {
		for _, l := range ledgers {
			if err := l.check(t.Context(), a.server, l.all()); err != nil {
				t.Logf("before a repair, by the varve of one data centre: %v", err)
			}
		}
	}
	sites[0].readBack(t, ledgers, "--cassandra-read-consistency=ALL")
	for _, a := range sites {
		a.readBack(t, ledgers)
	}
}

// refused checks that a delete is refused while a data centre is down, and deletes
// nothing.
func refused(t *testing.T, l *ledger, servers ...*process.Server) {
	t.Helper()
	s := span{0, eraPoints}
	l.mu.Lock()
	before := append([]fate(nil), l.points[s.from:s.to]...)
	l.mu.Unlock()
	for _, v := range servers {
		err := l.erase(t.Context(), v, s)
		var status *process.StatusError
		if !errors.As(err, &status) || status.Got != http.StatusServiceUnavailable {
			t.Errorf("a delete while a data centre is away: %v, want 503", err)
		}
	}
	l.mu.Lock()
	copy(l.points[s.from:s.to], before)
	l.mu.Unlock()
}

// handedOver waits until all acknowledged points are in Cassandra.
func handedOver(t *testing.T, servers ...*process.Server) {
	t.Helper()
	for _, v := range servers {
		await(t, time.Minute, "all points handed over", func() error {
			_, err := v.Want(t.Context(), http.StatusNoContent, "POST", "/admin/flush", "")
			return err
		})
	}
}

func onAll(nodes []*originals.Node, do func(*originals.Node)) {
	for _, n := range nodes {
		do(n)
	}
}

// pass waits while clients continue.
func pass(t *testing.T, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(fmt.Errorf("the test ends: %w", t.Context().Err()))
	}
}
