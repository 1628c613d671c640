package write

import (
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

// TestLevelsOfWrites: writers need one data center only.
func TestLevelsOfWrites(t *testing.T) {
	for _, st := range []*cql.Statement{insertRowKey, insertRowTime, claimExpiry, findMetricName, findRowKey, rowkey.FindRowTime} {
		if st.Level != cql.Quorum {
			t.Errorf("%s is of level %d", st.Name, st.Level)
		}
	}
}
