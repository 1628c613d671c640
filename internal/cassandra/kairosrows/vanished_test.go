package kairosrows

import (
	"context"
	"fmt"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
)

// TestTruncatedIndex: whichever index table somebody empties while a writer works, the
// series that get samples are found again, also those that the writer knew.
func TestTruncatedIndex(t *testing.T) {
	b := newBench(t, ownKeyspace(), DefaultWriteConfig(), "")
	t.Cleanup(func() { b.change("DROP KEYSPACE IF EXISTS " + b.ks.Name) })
	at := int64(someTime)
	src := func() *memory {
		m := new(memory)
		at += 1000
		for i := range 40 {
			m.longs(longSeries(b.name(fmt.Sprint("m", i%4)), "host", fmt.Sprint("h", i)), 0, at)
		}
		return m
	}
	b.write(src())
	for _, tables := range [][]string{{"row_keys"}, {"row_key_time_index"}, {"string_index"}, {"row_keys", "row_key_time_index", "string_index", "varve_row_index", "varve_row_state", "data_points"}} {
		for _, table := range tables {
			b.change("TRUNCATE " + b.ks.Name + "." + table)
		}
		b.writer.probed = time.Time{} // it is time to look
		b.write(src())
		for i := range 4 {
			if found := b.found(b.name(fmt.Sprint("m", i))); len(found) != 10 {
				t.Errorf("%v emptied: %d series of a metric are found", tables, len(found))
			}
		}
		if n := b.count("string_index"); n != 4 {
			t.Errorf("%v emptied: %d names", tables, n)
		}
		before := float64Of(t, b.writer.metrics.indexRows)
		b.writer.probed = time.Time{}
		b.write(src())
		if n := float64Of(t, b.writer.metrics.indexRows) - before; n != 0 {
			t.Errorf("%v emptied: %v index rows are written once more", tables, n)
		}
	}
}

// TestVanishedPartition: of one partition that somebody has removed without telling only
// that one is forgotten.
func TestVanishedPartition(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultWriteConfig(), "")
	src := new(memory)
	for i := range 8 {
		src.longs(longSeries(b.name(fmt.Sprint("m", i)), "host", "x"), 0, someTime)
	}
	b.write(src)
	gone := rowkey.Partition{Metric: b.name("m3"), TimeMS: b.ks.Spec.RowTime(someTime)}
	b.exec("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?", gone.Args()...)
	if missing, err := b.writer.vanished(b.ctx, gone); err != nil || !missing {
		t.Fatalf("%v, %v", missing, err)
	}
	parts := map[rowkey.Partition]struct{}{}
	for i := range 8 {
		parts[rowkey.Partition{Metric: b.name(fmt.Sprint("m", i)), TimeMS: gone.TimeMS}] = struct{}{}
	}
	for range 100 { // until it was among those that are looked at
		b.writer.probed = time.Time{}
		if err := b.writer.probe(b.ctx, parts); err != nil {
			t.Fatal(err)
		}
	}
	for p := range parts {
		if alive := b.writer.known.alive(p, time.Now().Unix()); alive != (p != gone) {
			t.Errorf("%v is known: %v", p, alive)
		}
	}
}

// change executes a statement that changes the schema, or empties a table.
func (b *bench) change(text string) {
	b.t.Helper()
	if err := b.ks.Session.Change(context.WithoutCancel(b.ctx), &cql.Statement{Name: "test", Text: text}); err != nil {
		b.t.Errorf("%s: %v", text, err)
	}
}
