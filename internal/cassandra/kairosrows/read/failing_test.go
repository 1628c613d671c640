package read

import (
	"strings"
	"testing"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
)

// TestTombstonesInLegacyIndex: KairosDB's deletes leave tombstones in
// row_key_index. A look that meets too many of them cannot tell whether the table
// is empty, and is no reason to fail all queries.
func TestTombstonesInLegacyIndex(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	metric := b.Name("innocent")
	b.FillKeys(metric, keyspacetest.CityTime(0), keyspacetest.CityKeys(0, 1))
	b.Bench = b.NewAt(node.Address, 2)
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		if strings.Contains(r.Statements[0].Text, "row_key_index LIMIT 1") {
			return cqltest.Tombstones
		}
		return nil
	})
	r, err := New(b.KS, readConfig(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	found, err := r.Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime})
	if err != nil || len(found) != 1 {
		t.Errorf("%d series, %v", len(found), err)
	}
}
