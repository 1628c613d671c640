package kairosrows

import (
	"bytes"
	"strings"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
)

// newFailingBench is newBench over a node that fails when it is told to.
func newFailingBench(t testing.TB) (*cqltest.FailingNode, *bench) {
	t.Helper()
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	b := newBench(t, DefaultConfig(), DefaultWriteConfig(), "")
	config := cql.DefaultConfig()
	config.Hosts, config.Keyspace, config.Attempts = []string{node.Address}, b.ks.Name, 2
	s := cqltest.Open(t, config, cql.Options{Observe: b.counts.observe})
	var err error
	if b.ks, err = Open(b.ctx, s, DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	b.writer = b.newWriter(DefaultWriteConfig(), b.writer.now)
	return node, b
}

// refuseIndexRowsOf refuses what is written to row_keys of a tag value.
func refuseIndexRowsOf(value string) func(cqltest.Request) *cqltest.Trouble {
	return func(r cqltest.Request) *cqltest.Trouble {
		for _, st := range r.Statements {
			if strings.Contains(st.Text, "INSERT INTO") && strings.Contains(st.Text, ".row_keys") && bytes.Contains(bytes.Join(st.Values, nil), []byte(value)) {
				return cqltest.KeyTooLong
			}
		}
		return nil
	}
}

// TestTombstonesInLegacyIndex: KairosDB's deletes leave tombstones in
// row_key_index. A look that meets too many of them cannot tell whether the table
// is empty, and is no reason to fail all queries.
func TestTombstonesInLegacyIndex(t *testing.T) {
	node, b := newFailingBench(t)
	metric := b.name("innocent")
	b.write(new(memory).longs(longSeries(metric, "host", "x"), 0, someTime))
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		if strings.Contains(r.Statements[0].Text, "row_key_index LIMIT 1") {
			return cqltest.Tombstones
		}
		return nil
	})
	found, err := b.reader().Look().Lookup(b.ctx, store.Selection{Metric: metric, Range: model.AllTime})
	if err != nil || len(found) != 1 {
		t.Errorf("%d series, %v", len(found), err)
	}
}
