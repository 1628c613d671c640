package cql_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/store"
)

// reaches sends inserts until a node has executed one of them.
func reaches(t *testing.T, s *cql.Session, n *wireNode) {
	t.Helper()
	until(t, time.Minute, "the node executes a statement", func() bool {
		s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v"))
		return len(n.asked(insert)) > 0
	})
}

// TestAnotherCluster: nodes of another cluster that take the addresses of the session's own
// execute no statement. It goes on once a node of its own answers, here at the same address.
func TestAnotherCluster(t *testing.T) { synctest.Test(t, testAnotherCluster) }

func testAnotherCluster(t *testing.T) {
	own := startWire(t, 2)
	s, _ := openWire(t, own, func(c *cql.Config) { c.OutageGrace = 0 })
	reaches(t, s, own[0])
	others := []*wireNode{own[0].follow(101), own[1].follow(102)}
	until(t, time.Minute, "the session says that another cluster answers", func() bool {
		state := s.State()
		return !state.Connected && strings.Contains(state.Reason, "with host id 65000000-") && strings.Contains(state.Reason, "is in another cluster")
	})
	var away *store.UnavailableError
	if _, err := s.One(t.Context(), selectAll, []any{[]byte("k")}, nil, nil, nil); !errors.As(err, &away) || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("a read meanwhile: %v", err)
	}
	for _, n := range others {
		if len(n.asked(insert))+len(n.asked(selectAll)) > 0 {
			t.Error("a node of another cluster has executed a statement")
		}
	}
	others[1].stop()
	reaches(t, s, others[0].follow(own[0].id))
	until(t, time.Minute, "the session is connected", func() bool { return s.State().Connected })
}

// TestAddressTaken: a node of another cluster that takes the address of one of two nodes gets
// none of their statements. A new node of the cluster at that address does.
func TestAddressTaken(t *testing.T) { synctest.Test(t, testAddressTaken) }

func testAddressTaken(t *testing.T) {
	own := startWire(t, 2)
	s, _ := openWire(t, own, nil)
	reaches(t, s, own[1])
	other := own[1].follow(102)
	for n := range 3 {
		until(t, time.Minute, "the driver has tried again", func() bool { return other.connections() > n })
		for range 10 {
			if err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(other.asked(insert)); n > 0 {
		t.Errorf("the node of another cluster has executed %d statements", n)
	}
	reaches(t, s, other.follow(3, own[0]))
}
