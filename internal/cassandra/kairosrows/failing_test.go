package kairosrows

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/spool"
	"varve/internal/store"
)

// newFailingBench is newBench over a node that fails when it is told to.
func newFailingBench(t testing.TB) (*cqltest.FailingNode, *bench) {
	t.Helper()
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	b := newBench(t, schema.DefaultConfig(), DefaultWriteConfig(), "")
	config := cql.DefaultConfig()
	config.Hosts, config.Keyspace, config.Attempts = []string{node.Address}, b.ks.Name, 2
	s := cqltest.Open(t, config, cql.Options{Observe: b.counts.observe})
	var err error
	if b.ks, err = schema.Open(b.ctx, s, schema.DefaultConfig()); err != nil {
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

// TestOneTagPartitionAway: a partition of the inverted index that is away costs the row
// keys that have a row there one attempt, and no others.
func TestOneTagPartitionAway(t *testing.T) {
	node, b := newFailingBench(t)
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		for _, st := range r.Statements {
			if strings.Contains(st.Text, "INSERT INTO") && strings.Contains(st.Text, ".varve_row_index") && string(st.Values[3]) == "gone" {
				return cqltest.Unavailable
			}
		}
		return nil
	})
	metric := b.name("m")
	src := new(memory)
	for i := range 400 {
		src.longs(longSeries(metric, "dc", "a", "host", fmt.Sprintf("h%05d", i)), 0, someTime)
	}
	src.longs(longSeries(metric, "dc", "a", "host", "gone"), 0, someTime)
	var partial *spool.PartialError
	for attempt, most := range []uint64{3 * rowkey.BatchPartitions, 1, 1} {
		err := b.writer.write(b.ctx, time.Now().UnixMilli(), src)
		if !errors.As(err, &partial) || partial.Series.GetCardinality() > most || !partial.Series.Contains(400) {
			t.Fatalf("attempt %d: %v", attempt+1, err)
		}
		if n := b.count("data_points"); n < 401-int(most) {
			t.Errorf("attempt %d: %d of 401 samples are written", attempt+1, n)
		}
	}
	if got := len(b.found(metric)); got != 400 {
		t.Errorf("%d of 400 series are found", got)
	}
	node.Mend()
	if err := b.writer.write(b.ctx, time.Now().UnixMilli(), src); err != nil {
		t.Fatal(err)
	}
	if got := len(b.found(metric)); got != 401 {
		t.Errorf("%d of 401 series are found at the end", got)
	}
}
