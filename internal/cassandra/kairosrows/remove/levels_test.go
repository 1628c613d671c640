package remove

import (
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

// TestLevelsOfRemovals: who removes decides by what is in each data center, and tells
// all of them.
func TestLevelsOfRemovals(t *testing.T) {
	for _, st := range []*cql.Statement{
		recordDeletion, listRowTimes, countTagRows, probeLegacyKeys, probeRowTime, probeName, probeTagIndexed, rowkey.ListRowKeys, rowkey.LegacyKeysAtQuorum,
		rowKeyRuns.list, rowKeyRuns.some, tagRowRuns.list, tagRowRuns.some,
		findTagRow, findLegacyKey, readTTLs, findRowKeys, findTagRows, findTagValues, scanRowKeys, scanTagRows, scanRowTimes, listNames, findRowKey,
	} {
		if st.Level != cql.Everywhere {
			t.Errorf("%s decides by one data center", st.Name)
		}
	}
	if findRows.Level != cql.SeesAll {
		t.Errorf("%s may miss samples", findRows.Name)
	}
	if readDeletions.Level != cql.Quorum {
		t.Errorf("%s is of level %d", readDeletions.Name, readDeletions.Level)
	}
}

// Rows that clients may make long are read in pages that do not have a fixed number of them.
func TestPagesOfLongRows(t *testing.T) {
	for _, st := range []*cql.Statement{rowkey.ListRowKeys, rowKeyRuns.list, rowKeyRuns.some, tagRowRuns.list, tagRowRuns.some, countTagRows, scanTagRows, scanRows, readDeletions} {
		if st.PageSize > 0 {
			t.Errorf("%s reads pages of %d rows", st.Name, st.PageSize)
		}
	}
	if readDeletions.RowBytes < 1<<20 {
		t.Errorf("%s expects rows of at most %d bytes", readDeletions.Name, readDeletions.RowBytes)
	}
}
