package read

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
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

// TestGuardrailOnManyKeys: where a guardrail allows few values in one statement, row keys
// that the inverted index gave are looked for in smaller portions, and the same are found.
func TestGuardrailOnManyKeys(t *testing.T) {
	const keys, allowed = 60, 7
	b := newReadBench(t, readConfig(), nil)
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	metric := b.Name("guarded")
	list := make([]rowkey.Key, keys)
	for i := range list {
		list[i] = rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("dc", "one", "host", fmt.Sprint("h", i))}
	}
	b.FillKeys(metric, keyspacetest.CityTime(0), list)
	b.Bench = b.NewAt(node.Address, 2)
	var refused, passed atomic.Int64
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		st := r.Statements[0]
		if !strings.Contains(st.Text, "tags IN ?") {
			return nil
		}
		if n := binary.BigEndian.Uint32(st.Values[len(st.Values)-1]); n > allowed {
			refused.Add(1)
			return &cqltest.Trouble{Error: true, Code: cqltest.OtherGuardrail.Code, Message: "Guardrail in_select_cartesian_product violated: Aborting query"}
		}
		passed.Add(1)
		return nil
	})
	r, err := New(b.KS, readConfig(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	found, err := r.Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{keyspacetest.OneOf("dc", "one")}})
	if err != nil || len(found) != keys || refused.Load() == 0 || passed.Load() == 0 {
		t.Errorf("%d series, %v; %d statements refused, %d passed", len(found), err, refused.Load(), passed.Load())
	}
}
