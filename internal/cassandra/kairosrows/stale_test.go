package kairosrows

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/cover"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
)

// TestStaleReplica: one of three replicas lacks what was written while it was away,
// and hints are lost. With read_consistency ONE, as KairosDB is shipped, questions may
// miss something until it is repaired, but nothing lasting is decided by what it
// says: no pass counts a partition as covered of which it has not seen all, and no
// delete takes index rows of rows that have samples.
func TestStaleReplica(t *testing.T) {
	if !*keyspacetest.Long {
		t.Skip("starts three Cassandra nodes; run with -cassandra.long: make test-cluster")
	}
	quiet := slog.New(slog.DiscardHandler)
	ring := originals.StartCluster(t, originals.ClusterOptions{Nodes: 3, YAML: "hinted_handoff_enabled: false\ndynamic_snitch: false\nendpoint_snitch: RackInferringSnitch"})
	config := cqltest.Config(ring.Addresses()...)
	open := func(consistency string) (*schema.Keyspace, *read.Reader) {
		c := config
		c.ReadConsistency, c.WriteConsistency = consistency, "QUORUM"
		s := cqltest.Open(t, c, cql.Options{Logger: quiet})
		k := schema.DefaultConfig()
		k.Create, k.Replication = schema.CreateKeyspace, "{'class': 'SimpleStrategy', 'replication_factor': '3'}"
		ks, err := schema.Open(t.Context(), s, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := read.New(ks, readConfig(), read.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return ks, r
	}
	quorum, sees := open("QUORUM")
	one, sloppy := open("ONE")
	w, err := write.New(one, write.DefaultConfig(), write.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	row := quorum.Spec.RowTime(keyspacetest.SomeTime)
	kairosDB := func(metric string, from, to int) {
		insert := &cql.Statement{Name: "test", Text: "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())"}
		var entries []cql.Entry
		for i := from; i < to; i++ {
			entries = append(entries, cql.Entry{Statement: insert, Args: []any{metric, schema.DataPoints, row, "kairos_long", cql.TagMap{Tags: model.MustTags("dc", "a", "host", fmt.Sprint("h", i))}}})
		}
		if err := quorum.Session.Batch(t.Context(), time.Now().UnixMilli(), entries); err != nil {
			t.Fatal(err)
		}
		if err := quorum.Session.Exec(t.Context(), &cql.Statement{Name: "test", Text: "INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)"}, time.Now().UnixMilli(), metric, schema.DataPoints, row); err != nil {
			t.Fatal(err)
		}
	}
	const metrics = 40
	for m := range metrics {
		kairosDB(fmt.Sprint("k", m), 0, 10)
	}
	ring.Nodes[2].Stop()
	for m := range metrics {
		kairosDB(fmt.Sprint("k", m), 10, 20)
	}
	src := new(keyspacetest.Memory)
	for i := range 60 {
		src.Longs(keyspacetest.LongSeries("varve", "host", fmt.Sprint("h", i)), 0, keyspacetest.SomeTime)
	}
	if err := w.WriteSource(t.Context(), time.Now().UnixMilli(), src); err != nil {
		t.Fatal(err)
	}
	ring.Nodes[2].Start()
	deadline := time.Now().Add(2 * time.Minute)
	for (one.Session.State().Nodes < 3 || quorum.Session.State().Nodes < 3) && time.Now().Before(deadline) {
		time.Sleep(time.Second)
	}

	passes, err := cover.New(one, cover.Config{Interval: 24 * time.Hour}, sloppy, cover.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(passes.Close)
	for m := range metrics {
		metric := fmt.Sprint("k", m)
		covered, err := passes.Cover(t.Context(), rowkey.Partition{Metric: metric, TimeMS: row})
		if err != nil {
			t.Fatal(err)
		}
		if !covered {
			t.Errorf("%s is not covered", metric)
			continue
		}
		look := sees.Look()
		for i := range 20 {
			found, err := look.Lookup(t.Context(), store.Selection{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{keyspacetest.OneOf("host", fmt.Sprint("h", i))}})
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 {
				t.Errorf("%s counts as covered, and host h%d is not found", metric, i)
			}
		}
	}
	d, err := remove.New(one, w, noNodes(), remove.Options{Node: "test", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	for range 4 {
		if err := d.Delete(t.Context(), time.Now().UnixMilli(), store.Deletion{Metric: "varve", Range: model.TimeRange{StartMS: keyspacetest.SomeTime + 3_600_000, EndMS: keyspacetest.SomeTime + 7_200_000}}); err != nil {
			t.Fatal(err)
		}
	}
	left, err := sees.Look().Lookup(t.Context(), store.Selection{Metric: "varve", Range: model.AllTime})
	if err != nil || len(left) != 60 {
		t.Errorf("after a delete of an hour without samples %d of 60 series are found, %v", len(left), err)
	}
}
