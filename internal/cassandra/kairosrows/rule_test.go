package kairosrows

import (
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/store"
)

// What belongs to the rule of index rows: see Writer.

// TestRepairBesideBacklog: a repair, by another process, between the index rows and the
// samples of a generation that has waited for long.
func TestRepairBesideBacklog(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	metric := b.Name("late")
	d, err := remove.New(b.KS, b.newWriter(write.DefaultConfig(), time.Now), noNodes(), remove.Options{Node: "repair"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	var once sync.Once
	b.Counts.Before = func(name string) {
		if name != "insert_sample" {
			return
		}
		once.Do(func() {
			if r, err := d.Repair(b.Ctx, remove.RepairOptions{}); err != nil || r.DeadRowKeys != 1 {
				t.Errorf("repair: %+v, %v", r, err)
			}
		})
	}
	waited := time.Now().Add(-2 * time.Hour).UnixMilli()
	if err := b.writer.WriteSource(b.Ctx, waited, new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "host", "x"), 0, keyspacetest.SomeTime)); err != nil {
		t.Fatal(err)
	}
	if found := lookup.Series(b.Bench, metric); len(found) != 1 {
		t.Errorf("found %v; rows of %s: %s", found, keyspacetest.Tables, b.TableCounts())
	}
}

// TestDeletesOfKairosDB: what KairosDB deletes without telling is put back if the row
// has got samples since, also those of a series that gets no more, and stays away if
// it has none.
func TestDeletesOfKairosDB(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	yes := noNodes()
	yes.KairosDBNodes = remove.NodesYes
	watch := b.watch(b.deleter(yes, time.Now))
	later, gone, other := keyspacetest.LongSeries(b.Name("m"), "host", "later"), keyspacetest.LongSeries(b.Name("m"), "host", "gone"), keyspacetest.LongSeries(b.Name("m"), "host", "other")
	b.write(new(keyspacetest.Memory).Longs(later, 0, keyspacetest.SomeTime).Longs(gone, 0, keyspacetest.SomeTime).Longs(other, 0, keyspacetest.SomeTime))
	row := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	for _, s := range []model.Series{later, gone} {
		key, err := rowkey.Partition{Metric: s.Metric, TimeMS: row}.DataKey(rowkey.Of(s))
		if err != nil {
			t.Fatal(err)
		}
		keyspacetest.NextMillisecond()
		b.ExecNow("DELETE FROM data_points WHERE key = ?", key)
		b.ExecNow(removeRowKey, s.Metric, schema.DataPoints, row, string(s.Type), cql.TagMap{Tags: s.Tags})
	}
	b.ExecNow("DELETE FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?", b.Name("m"), schema.DataPoints, row)
	b.ExecNow("DELETE FROM string_index WHERE key = ? AND column1 = ?", []byte(schema.MetricNames), b.Name("m"))
	keyspacetest.NextMillisecond()
	b.write(new(keyspacetest.Memory).Longs(later, 0, keyspacetest.SomeTime+60_000))
	if found := lookup.Series(b.Bench, b.Name("m")); len(found) != 0 {
		t.Fatalf("found before it is looked for: %v", found)
	}
	watch.Look(b.Ctx, 0)
	if found := lookup.Series(b.Bench, b.Name("m")); len(found) != 2 {
		t.Errorf("found %v, want those that have samples", found)
	}
	if n := b.Count("string_index"); n != 1 {
		t.Errorf("%d names", n)
	}
	// A node whose clock is ahead: what is put back is hidden, and put back again.
	ahead := time.Now().Add(3 * time.Second).UnixMilli()
	if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: removeRowKey}, ahead, later.Metric, schema.DataPoints, row, string(later.Type), cql.TagMap{Tags: later.Tags}); err != nil {
		t.Fatal(err)
	}
	b.write(new(keyspacetest.Memory).Longs(later, 0, keyspacetest.SomeTime+120_000))
	deadline := time.Now().Add(time.Minute)
	for len(lookup.Series(b.Bench, b.Name("m"))) != 2 && time.Now().Before(deadline) {
		watch.Look(b.Ctx, 0)
		time.Sleep(200 * time.Millisecond)
	}
	if found := lookup.Series(b.Bench, b.Name("m")); len(found) != 2 {
		t.Errorf("a clock that is ahead: found %v", found)
	}
	// At rest: nothing is read, once all was found.
	watch.Look(b.Ctx, 0)
	b.Counts.Take()
	watch.Look(b.Ctx, 0)
	if n := keyspacetest.Total(b.Counts.Take()); n != 0 {
		t.Errorf("%d statements, although no samples came", n)
	}
}

// TestRowKeyBesideWholeDelete: a delete of a whole metric, of which another node has
// removed a row key and a third one has written a new series since it looked for rows,
// leaves the new one.
func TestRowKeyBesideWholeDelete(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	metric := b.Name("m")
	one, two, late := keyspacetest.LongSeries(metric, "k", "1"), keyspacetest.LongSeries(metric, "k", "2"), keyspacetest.LongSeries(metric, "k", "3")
	b.write(new(keyspacetest.Memory).Longs(one, 0, keyspacetest.SomeTime).Longs(two, 0, keyspacetest.SomeTime))
	other := b.newWriter(write.DefaultConfig(), time.Now)
	var once sync.Once
	stamp := b.Stamp + 1
	b.Counts.Before = func(statement string) {
		if statement != "list_row_times" {
			return
		}
		once.Do(func() {
			b.ExecNow(removeRowKey, metric, schema.DataPoints, b.KS.Spec.RowTime(keyspacetest.SomeTime), string(two.Type), cql.TagMap{Tags: two.Tags})
			if err := other.WriteSource(b.Ctx, time.Now().UnixMilli()+1000, new(keyspacetest.Memory).Longs(late, 0, keyspacetest.SomeTime)); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond) // the announcement's timestamp is above that of its index rows
		})
	}
	if err := d.Delete(b.Ctx, stamp, store.Deletion{Metric: metric, Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	if found := lookup.Series(b.Bench, metric); len(found) != 1 || found[0].Series != late {
		t.Errorf("found %v", found)
	}
}

// TestLastKairosDBNode: what the last KairosDB node has removed before it ended is put
// back, although none runs when it is looked for, and so is what gets samples later.
func TestLastKairosDBNode(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	clock := time.Now()
	now := func() time.Time { return clock }
	b.writer = b.newWriter(write.DefaultConfig(), now)
	watch := b.watch(b.deleter(remove.DefaultConfig(), now))
	used, later := keyspacetest.LongSeries(b.Name("now"), "k", "v"), keyspacetest.LongSeries(b.Name("later"), "k", "v")
	b.ExecNow("INSERT INTO service_index (service, service_key, key, value, mtime) VALUES ('_Hosts', 'Active', 'guid', 'kairos1', now())")
	b.write(new(keyspacetest.Memory).Longs(used, 0, keyspacetest.SomeTime).Longs(later, 0, keyspacetest.SomeTime))
	interval := 10 * time.Minute
	clock = clock.Add(time.Minute)
	watch.Look(b.Ctx, 0)
	keyspacetest.NextMillisecond()
	for _, s := range []model.Series{used, later} {
		b.ExecNow(removeRowKey, s.Metric, schema.DataPoints, b.KS.Spec.RowTime(keyspacetest.SomeTime), string(s.Type), cql.TagMap{Tags: s.Tags})
	}
	keyspacetest.NextMillisecond()
	b.write(new(keyspacetest.Memory).Longs(used, 0, keyspacetest.SomeTime+1))
	for range 8 {
		clock = clock.Add(interval / 4)
		watch.Look(b.Ctx, interval)
	}
	if found := lookup.Series(b.Bench, used.Metric); len(found) != 1 {
		t.Errorf("found %v", found)
	}
	b.write(new(keyspacetest.Memory).Longs(later, 0, keyspacetest.SomeTime+1))
	if found := lookup.Series(b.Bench, later.Metric); len(found) != 1 {
		t.Errorf("found %v of a series that got samples later", found)
	}
	b.Counts.Take()
	clock = clock.Add(interval)
	watch.Look(b.Ctx, interval)
	if n := keyspacetest.Total(b.Counts.Take()); n > 1 {
		t.Errorf("%d statements, although no KairosDB node runs", n)
	}
}

// removeRowKey is what KairosDB does, and another Varve node.
const removeRowKey = "DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?"
