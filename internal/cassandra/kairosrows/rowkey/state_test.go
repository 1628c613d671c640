package rowkey

import (
	"testing"

	"varve/internal/cassandra/cql"
)

// TestLastingDecisions: what decides something lasting is read at a quorum.
func TestLastingDecisions(t *testing.T) {
	for _, st := range []*cql.Statement{selectMtimeEverywhere, selectRowState, selectFirstRowKey, ListRowKeys, FindRowTime, probeRow, readDeletes, LegacyKeysAtQuorum} {
		if st.Level == cql.Configured {
			t.Errorf("%s is read at read_consistency", st.Name)
		}
	}
	for _, st := range []*cql.Statement{announceDelete, selectMtimeEverywhere, ListRowKeys, LegacyKeysAtQuorum} {
		if st.Level != cql.Everywhere {
			t.Errorf("%s leaves out other data centers", st.Name)
		}
	}
	if insertMetricName.Level != cql.Quorum {
		t.Errorf("%s, of writers, is of level %d", insertMetricName.Name, insertMetricName.Level)
	}
}
