package kairosrows

import (
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/store"
)

// TestDeleteElsewhere: index rows that another node deleted are there again when
// samples come, also samples of long ago that have waited; and that is told.
func TestDeleteElsewhere(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now) // has the first writer
	b.writer = b.newWriter(write.DefaultConfig(), time.Now)
	src := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "v"), 0, keyspacetest.SomeTime)
	b.write(src)
	b.delete(d, store.Deletion{Metric: b.Name("m"), Range: model.AllTime})
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Fatalf("rows of %s: %s", keyspacetest.Tables, got)
	}
	b.Counts.Take()
	b.write(src)
	if got := b.TableCounts(); got != "1 1 1 1 0 1" {
		t.Errorf("the node that knows nothing of the delete: rows of %s: %s", keyspacetest.Tables, got)
	}
	if got := b.Counts.Take(); got["update_row_covered"] != 1 {
		t.Errorf("other nodes are not told: %v", got)
	}
	// A part is deleted, so that the row is empty, and then comes what was
	// appended before the delete.
	old := time.Now().UnixMilli()
	keyspacetest.NextMillisecond()
	b.delete(d, store.Deletion{Metric: b.Name("m"), Range: model.TimeRange{StartMS: keyspacetest.SomeTime, EndMS: keyspacetest.SomeTime}})
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Fatalf("rows of %s: %s", keyspacetest.Tables, got)
	}
	late := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "v"), 0, keyspacetest.SomeTime+1)
	if err := b.writer.WriteSource(t.Context(), old, late); err != nil {
		t.Fatal(err)
	}
	if got := b.TableCounts(); got != "1 1 1 1 0 1" {
		t.Errorf("samples that are older than the delete of others in their row: rows of %s: %s", keyspacetest.Tables, got)
	}
}
