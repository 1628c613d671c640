package schema

import (
	"testing"

	"varve/internal/cassandra/cql"
)

// TestLevelsOfSpec: a stale replica alone must not decide how the rows of a keyspace are placed.
func TestLevelsOfSpec(t *testing.T) {
	for _, st := range []*cql.Statement{readSpec, readOwnSpecRow, anyMetricName, writeSpec} {
		if st.Level != cql.Quorum {
			t.Errorf("%s is of level %d", st.Name, st.Level)
		}
	}
	for _, st := range []*cql.Statement{peekSpec, peekOwnSpecRow} {
		if st.Level != cql.Configured {
			t.Errorf("%s is of level %d; it is asked with each generation", st.Name, st.Level)
		}
	}
}
