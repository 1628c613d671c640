package schema

import (
	"fmt"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// TestKairosDBNodes: a server that takes part in the roll-ups of KairosDB nodes is listed
// among them, and is none.
func TestKairosDBNodes(t *testing.T) {
	session := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	ks := mustOpen(t, session, func(*Config) {})
	now := time.Now()
	for _, listed := range []struct {
		key  string
		age  time.Duration
		want bool
	}{
		{"varve-1", 0, false},
		{"3f2a", HostLife, false},
		{"3f2b", HostLife - time.Second, true},
	} {
		cqltest.Must(t, session, fmt.Sprintf("INSERT INTO service_index (service, service_key, key, value) VALUES ('_Hosts', 'Active', '%s', 'host') USING TIMESTAMP %d",
			listed.key, now.Add(-listed.age).UnixMilli()))
		if run, err := ks.KairosDBNodes(t.Context(), now); err != nil || run != listed.want {
			t.Errorf("with %s, renewed %v ago: a KairosDB node runs: %v, %v", listed.key, listed.age, run, err)
		}
	}
}
