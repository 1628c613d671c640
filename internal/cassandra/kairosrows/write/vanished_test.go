package write

import (
	"context"
	"fmt"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
)

// TestTruncatedIndex: whichever index table is emptied while a writer works, series that get
// samples are found again, including those that the writer knew.
func TestTruncatedIndex(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), DefaultConfig(), "")
	t.Cleanup(func() { b.change("DROP KEYSPACE IF EXISTS " + b.KS.Name) })
	at := int64(keyspacetest.SomeTime)
	src := func() *keyspacetest.Memory {
		m := new(keyspacetest.Memory)
		at += 1000
		for i := range 40 {
			m.Longs(keyspacetest.LongSeries(b.Name(fmt.Sprint("m", i%4)), "host", fmt.Sprint("h", i)), 0, at)
		}
		return m
	}
	b.write(src())
	for _, tables := range [][]string{{"row_keys"}, {"row_key_time_index"}, {"string_index"}, {"varve_row_index"}, {"row_keys", "row_key_time_index", "string_index", "varve_row_index", "varve_row_state", "data_points"}} {
		for _, table := range tables {
			b.change("TRUNCATE " + b.KS.Name + "." + table)
		}
		b.writer.probed = time.Time{} // it is time to look
		b.write(src())
		for i := range 4 {
			if found := lookup.Series(b.Bench, b.Name(fmt.Sprint("m", i))); len(found) != 10 {
				t.Errorf("%v emptied: %d series of a metric are found", tables, len(found))
			}
		}
		if n := b.Count("string_index"); n != 4 {
			t.Errorf("%v emptied: %d names", tables, n)
		}
		if n := b.Count("varve_row_index"); n != 40 {
			t.Errorf("%v emptied: %d rows of the inverted index", tables, n)
		}
		before := keyspacetest.Value(t, b.writer.metrics.indexRows)
		b.writer.probed = time.Time{}
		b.write(src())
		if n := keyspacetest.Value(t, b.writer.metrics.indexRows) - before; n != 0 {
			t.Errorf("%v emptied: %v index rows are written once more", tables, n)
		}
	}
}

// TestTruncatedIndexThatGrows: somebody empties row_keys, and each partition gets a new
// series before anybody looks. The known series are found again when they get samples.
func TestTruncatedIndexThatGrows(t *testing.T) {
	for _, metrics := range []int{1, 4} {
		t.Run(fmt.Sprint(metrics), func(t *testing.T) {
			b := newBench(t, keyspacetest.OwnKeyspace(), DefaultConfig(), "")
			t.Cleanup(func() { b.change("DROP KEYSPACE IF EXISTS " + b.KS.Name) })
			at := int64(keyspacetest.SomeTime)
			src := func(hosts int) *keyspacetest.Memory {
				m := new(keyspacetest.Memory)
				at += 1000
				for i := range hosts * metrics {
					m.Longs(keyspacetest.LongSeries(b.Name(fmt.Sprint("m", i%metrics)), "host", fmt.Sprint("h", i/metrics)), 0, at)
				}
				return m
			}
			b.write(src(10))
			b.change("TRUNCATE " + b.KS.Name + ".row_keys")
			for range 10 { // a look may come upon the new series
				b.writer.probed = time.Time{}
				b.write(src(11))
			}
			for i := range metrics {
				if found := lookup.Series(b.Bench, b.Name(fmt.Sprint("m", i))); len(found) != 11 {
					t.Errorf("%d series of a metric are found, want 11", len(found))
				}
			}
		})
	}
}

// oneRowKeyLess writes two partitions of two series each, and deletes a row key of part.
func oneRowKeyLess(b *bench) (part, other rowkey.Partition) {
	src := new(keyspacetest.Memory)
	for i := range 4 {
		src.Longs(keyspacetest.LongSeries(b.Name(fmt.Sprint("m", i/2)), "host", fmt.Sprint("h", i)), 0, keyspacetest.SomeTime)
	}
	b.write(src)
	at := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	part, other = rowkey.Partition{Metric: b.Name("m0"), TimeMS: at}, rowkey.Partition{Metric: b.Name("m1"), TimeMS: at}
	b.ExecNow("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?",
		append(part.Args(), rowkey.Of(src.All[0]).Args()...)...)
	return part, other
}

// TestVanishedRowKey: of a row key that a KairosDB node has deleted, and that others of its
// partition have outlived, only the partition is forgotten.
func TestVanishedRowKey(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	part, other := oneRowKeyLess(b)
	for range 100 { // until a look comes upon it
		b.writer.probed = time.Time{}
		if err := b.writer.probe(b.Ctx, map[rowkey.Partition]struct{}{part: {}}); err != nil {
			t.Fatal(err)
		}
	}
	_, alive := b.writer.known.anyAlive(part, time.Now().Unix())
	_, otherAlive := b.writer.known.anyAlive(other, time.Now().Unix())
	if alive || !otherAlive {
		t.Errorf("the partition is known: %v, another one: %v", alive, otherAlive)
	}
}

// TestRestoredIndex: while no KairosDB node runs, a row key that is missing means that older tables were
// restored. Everything is forgotten, although the others of its partition are there.
func TestRestoredIndex(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	b.writer.known.watchFor(false)
	part, other := oneRowKeyLess(b)
	for alive := true; alive; _, alive = b.writer.known.anyAlive(part, time.Now().Unix()) { // until a look comes upon it
		b.writer.probed = time.Time{}
		if err := b.writer.probe(b.Ctx, map[rowkey.Partition]struct{}{part: {}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, alive := b.writer.known.anyAlive(other, time.Now().Unix()); alive {
		t.Error("the other partition is known")
	}
}

// TestVanishedPartition: if a partition was removed without announcement, only that partition
// is forgotten.
func TestVanishedPartition(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	src := new(keyspacetest.Memory)
	for i := range 8 {
		src.Longs(keyspacetest.LongSeries(b.Name(fmt.Sprint("m", i)), "host", "x"), 0, keyspacetest.SomeTime)
	}
	b.write(src)
	gone := rowkey.Partition{Metric: b.Name("m3"), TimeMS: b.KS.Spec.RowTime(keyspacetest.SomeTime)}
	b.ExecNow("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?", gone.Args()...)
	if found, err := b.writer.lookInto(b.Ctx, gone, rowkey.Of(src.All[3])); err != nil || found != allMissing {
		t.Fatalf("%v, %v", found, err)
	}
	parts := map[rowkey.Partition]struct{}{}
	for i := range 8 {
		parts[rowkey.Partition{Metric: b.Name(fmt.Sprint("m", i)), TimeMS: gone.TimeMS}] = struct{}{}
	}
	for range 100 { // until it was among those that are looked at
		b.writer.probed = time.Time{}
		if err := b.writer.probe(b.Ctx, parts); err != nil {
			t.Fatal(err)
		}
	}
	for p := range parts {
		if _, alive := b.writer.known.anyAlive(p, time.Now().Unix()); alive != (p != gone) {
			t.Errorf("%v is known: %v", p, alive)
		}
	}
}

// change executes a statement that changes the schema, or empties a table.
func (b *bench) change(text string) {
	b.T.Helper()
	if err := b.KS.Session.Change(context.WithoutCancel(b.Ctx), &cql.Statement{Name: "test", Text: text}); err != nil {
		b.T.Errorf("%s: %v", text, err)
	}
}

// TestProbeBeginsAnywhere: each partition is about as often the first one that is checked.
func TestProbeBeginsAnywhere(t *testing.T) {
	first := map[string]int{}
	for range 4000 {
		parts := map[rowkey.Partition]struct{}{}
		for _, metric := range []string{"a", "b", "c", "d"} {
			parts[rowkey.Partition{Metric: metric}] = struct{}{}
		}
		first[inAnyOrder(parts)[0].Metric]++
	}
	for metric, n := range first {
		if n < 700 || n > 1300 {
			t.Errorf("partition of %s: %d of 4000 times the first one", metric, n)
		}
	}
}
