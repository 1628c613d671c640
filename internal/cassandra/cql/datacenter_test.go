package cql_test

import (
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// TestWrongDatacenter: a session whose data centre has no node says which there are.
func TestWrongDatacenter(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	config.Datacenter = "atlantis"
	s, err := cql.Open(config, cql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	until(t, 20*time.Second, "told", func() bool {
		return strings.Contains(s.State().Reason, "no node is in data centre atlantis; the cluster has datacenter1: set cassandra.datacenter")
	})
	if s.State().Connected {
		t.Error("connected")
	}
}
