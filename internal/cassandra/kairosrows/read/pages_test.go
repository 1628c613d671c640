package read

import (
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
)

// Rows that clients may make long are read in pages that do not have a fixed number of them.
func TestPagesOfLongRows(t *testing.T) {
	for _, st := range []*cql.Statement{inspectCells, inspectKeys, readRowKeys, readPostings, readPostingsRaced, seekRowKeys, readMetricNames, rowkey.LegacyKeys} {
		if st.PageSize > 0 {
			t.Errorf("%s reads pages of %d rows", st.Name, st.PageSize)
		}
	}
	if !readPostings.Many || !readPostingsRaced.Many {
		t.Error("first pages of the inverted index are long")
	}
	if inspectKeys.RowBytes < valueBytes {
		t.Errorf("%s expects rows of at most %d bytes", inspectKeys.Name, inspectKeys.RowBytes)
	}
}
