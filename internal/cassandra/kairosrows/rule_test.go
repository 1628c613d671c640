package kairosrows

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/store"
)

// What belongs to the rule of index rows: see Writer.

// found returns the series of a metric that a reader with cold caches finds.
func (b *bench) found(metric string, matchers ...model.Matcher) []SeriesRows {
	b.t.Helper()
	found, err := b.reader().Look().Lookup(b.ctx, store.Selection{Metric: metric, Range: model.AllTime, Matchers: matchers})
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// TestDeleteCostsOthersNothing: after a delete only series of that metric and those
// row times have index rows written again, by all nodes.
func TestDeleteCostsOthersNothing(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultWriteConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	other := b.newWriter(DefaultWriteConfig(), time.Now)
	src := func(at int64) *memory {
		m := new(memory)
		for i := range 200 {
			m.longs(longSeries(b.name(fmt.Sprint("m", i%10)), "host", fmt.Sprint("h", i)), 0, at)
		}
		return m
	}
	tiny := new(memory).longs(longSeries(b.name("tiny"), "host", "x"), 0, someTime)
	writers := []*Writer{b.writer, other}
	for _, w := range writers {
		b.writer = w
		b.write(src(someTime))
		b.write(tiny)
	}
	b.delete(d, store.Deletion{Metric: b.name("tiny"), Range: model.AllTime})
	for i, w := range writers {
		b.writer = w
		before := float64Of(t, w.metrics.indexRows)
		b.write(src(someTime + 1000))
		if n := float64Of(t, w.metrics.indexRows) - before; n != 0 {
			t.Errorf("node %d: %v index rows of other metrics are written again", i, n)
		}
		b.write(tiny)
		if n := float64Of(t, w.metrics.indexRows) - before; n != 2+1 { // with the mark
			t.Errorf("node %d: %v index rows of the deleted series are written", i, n)
		}
		b.delete(d, store.Deletion{Metric: b.name("tiny"), Range: model.AllTime})
	}
}

// TestLostAnnouncements: who finds a number missing takes it that anything may have
// been removed.
func TestLostAnnouncements(t *testing.T) {
	b := newBench(t, ownKeyspace(), DefaultWriteConfig(), "")
	teller := b.newWriter(DefaultWriteConfig(), time.Now).deletes
	k := newKnown(1000)
	clock := time.Now()
	a := newAnnouncements(b.ks, k, func() time.Time { return clock })
	if err := a.begin(b.ctx); err != nil {
		t.Fatal(err)
	}
	forgets := func(what string, want ...rowkey.Span) {
		t.Helper()
		epoch := k.now()
		if err := a.look(b.ctx); err != nil {
			t.Fatal(err)
		}
		var got []rowkey.Span
		forgotten, _ := k.since(epoch)
		for _, f := range forgotten {
			got = append(got, f.Span)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: forgets %v, want %v", what, got, want)
		}
	}
	tell := func(s rowkey.Span) (stamp int64) {
		t.Helper()
		stamp, err := teller.announce(b.ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		return stamp
	}
	forgets("nothing")
	stamp := tell(rowkey.Span{Metric: "a b", LowMS: 1, HighMS: 2})
	forgets("one", rowkey.Span{Metric: "a b", LowMS: 1, HighMS: 2})
	if a.stamp() <= stamp {
		t.Error("index rows are not written above an announced removal")
	}
	forgets("none since")
	for i := range int64(rowkey.AnnouncementSlots) {
		stamp = tell(rowkey.Span{Metric: "m", LowMS: i, HighMS: i})
	}
	epoch := k.now()
	if err := a.look(b.ctx); err != nil {
		t.Fatal(err)
	}
	if forgotten, _ := k.since(epoch); len(forgotten) != rowkey.AnnouncementSlots {
		t.Errorf("%d of %d announcements are seen", len(forgotten), rowkey.AnnouncementSlots)
	}
	for range rowkey.AnnouncementSlots + 1 {
		stamp = tell(rowkey.Span{Metric: "m", LowMS: 0, HighMS: 0})
	}
	if err := a.look(b.ctx); err != nil {
		t.Fatal(err)
	}
	epoch = k.now()
	k.forget(rowkey.Span{})
	if forgotten, _ := k.since(epoch - 1); forgotten[0].Metric != "" {
		t.Errorf("one announcement was overwritten before it was seen: %v", forgotten)
	}
	if a.stamp() <= stamp {
		t.Error("index rows are not written above removals that were not seen")
	}
	forgets("none since")
	clock = clock.Add(rowkey.MaxUnlooked + time.Minute)
	forgets("silent for too long", rowkey.Everything)
	clock = clock.Add(-time.Hour)
	forgets("the clock was set back", rowkey.Everything)
	b.exec("INSERT INTO service_index (service, service_key, key, value) VALUES ('_Varve', 'Deletes', 'later/0', 'what a later version writes')")
	forgets("cannot be read", rowkey.Everything)
	forgets("still cannot be read", rowkey.Everything)
}

// nextMillisecond waits until what is written now is above a delete of before.
func nextMillisecond() {
	for ms := time.Now().UnixMilli(); time.Now().UnixMilli() <= ms; {
		time.Sleep(100 * time.Microsecond)
	}
}

// exec executes a statement with the timestamp of now.
func (b *bench) exec(text string, args ...any) {
	b.t.Helper()
	if err := b.ks.Session.Exec(b.ctx, &cql.Statement{Name: "test", Text: text}, time.Now().UnixMilli(), args...); err != nil {
		b.t.Fatal(err)
	}
}

// TestRepairBesideBacklog: a repair, by another process, between the index rows and the
// samples of a generation that has waited for long.
func TestRepairBesideBacklog(t *testing.T) {
	b := newBench(t, ownKeyspace(), DefaultWriteConfig(), "")
	metric := b.name("late")
	d, err := NewDeleter(b.ks, b.newWriter(DefaultWriteConfig(), time.Now), noNodes(), DeleterOptions{Node: "repair"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	send := b.writer.batch
	var once sync.Once
	b.writer.batch = func(ctx context.Context, stampMS int64, entries []cql.Entry) error {
		once.Do(func() {
			if r, err := d.Repair(ctx, RepairOptions{}); err != nil || r.DeadRowKeys != 1 {
				t.Errorf("repair: %+v, %v", r, err)
			}
		})
		return send(ctx, stampMS, entries)
	}
	waited := time.Now().Add(-2 * time.Hour).UnixMilli()
	if err := b.writer.write(b.ctx, waited, new(memory).longs(longSeries(metric, "host", "x"), 0, someTime)); err != nil {
		t.Fatal(err)
	}
	if found := b.found(metric); len(found) != 1 {
		t.Errorf("found %v; rows of %s: %s", found, tables, b.tableCounts())
	}
}

// TestDeletesOfKairosDB: what KairosDB deletes without telling is put back if the row
// has got samples since, also those of a series that gets no more, and stays away if
// it has none.
func TestDeletesOfKairosDB(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultWriteConfig(), "")
	yes := noNodes()
	yes.KairosDBNodes = NodesYes
	watch := b.watch(b.deleter(yes, time.Now))
	later, gone, other := longSeries(b.name("m"), "host", "later"), longSeries(b.name("m"), "host", "gone"), longSeries(b.name("m"), "host", "other")
	b.write(new(memory).longs(later, 0, someTime).longs(gone, 0, someTime).longs(other, 0, someTime))
	row := b.ks.Spec.RowTime(someTime)
	for _, s := range []model.Series{later, gone} {
		key, err := keyOf(s, row, nil)
		if err != nil {
			t.Fatal(err)
		}
		nextMillisecond()
		b.exec("DELETE FROM data_points WHERE key = ?", key)
		b.exec(deleteRowKey.Text, s.Metric, schema.DataPoints, row, string(s.Type), cql.TagMap{Tags: s.Tags})
	}
	b.exec(deleteRowTime.Text, b.name("m"), schema.DataPoints, row)
	b.exec(deleteMetricName.Text, []byte(schema.MetricNames), b.name("m"))
	nextMillisecond()
	b.write(new(memory).longs(later, 0, someTime+60_000))
	if found := b.found(b.name("m")); len(found) != 0 {
		t.Fatalf("found before it is looked for: %v", found)
	}
	watch.Look(b.ctx, 0)
	if found := b.found(b.name("m")); len(found) != 2 {
		t.Errorf("found %v, want those that have samples", found)
	}
	if n := b.count("string_index"); n != 1 {
		t.Errorf("%d names", n)
	}
	// A node whose clock is ahead: what is put back is hidden, and put back again.
	ahead := time.Now().Add(3 * time.Second).UnixMilli()
	if err := b.ks.Session.Exec(b.ctx, deleteRowKey, ahead, later.Metric, schema.DataPoints, row, string(later.Type), cql.TagMap{Tags: later.Tags}); err != nil {
		t.Fatal(err)
	}
	b.write(new(memory).longs(later, 0, someTime+120_000))
	deadline := time.Now().Add(20 * time.Second)
	for len(b.found(b.name("m"))) != 2 && time.Now().Before(deadline) {
		watch.Look(b.ctx, 0)
		time.Sleep(200 * time.Millisecond)
	}
	if found := b.found(b.name("m")); len(found) != 2 {
		t.Errorf("a clock that is ahead: found %v", found)
	}
	// At rest: nothing is read, once all was found.
	watch.Look(b.ctx, 0)
	b.counts.take()
	watch.Look(b.ctx, 0)
	if n := total(b.counts.take()); n != 0 {
		t.Errorf("%d statements, although no samples came", n)
	}
}

// TestWatchOfEvicted: what KairosDB deletes is put back too if the row keys have left the
// cache since samples relied on them.
func TestWatchOfEvicted(t *testing.T) {
	c := DefaultWriteConfig()
	c.IndexCache = 1000
	b := newBench(t, schema.DefaultConfig(), c, "")
	yes := noNodes()
	yes.KairosDBNodes = NodesYes
	watch := b.watch(b.deleter(yes, time.Now))
	metric, row := b.name("m"), b.ks.Spec.RowTime(someTime)
	src := manySeries(metric, 100)
	b.write(src)
	for _, s := range src.series {
		key, err := keyOf(s, row, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.exec("DELETE FROM data_points WHERE key = ?", key)
	}
	b.exec(deleteRowKeys.Text, metric, schema.DataPoints, row, "")
	nextMillisecond()
	b.write(src)
	if found := b.found(metric); len(found) != 0 {
		t.Fatalf("found before it is looked for: %v", found)
	}
	b.write(manySeries(b.name("others"), 1000))
	if _, evicted := b.writer.known.size(); evicted < 100 {
		t.Fatalf("%d row keys left the cache", evicted)
	}
	if n := b.writer.known.missed(); n != 0 {
		t.Errorf("%d row keys will not be looked at", n)
	}
	watch.Look(b.ctx, 0)
	if found := b.found(metric); len(found) != 100 {
		t.Errorf("%d of 100 series are found", len(found))
	}
	// What does not fit is counted.
	for i := range 5 {
		b.write(manySeries(b.name(fmt.Sprint("more", i)), 900))
	}
	if n := b.writer.known.missed(); n < 1000 {
		t.Errorf("%d row keys count as not looked at", n)
	}
}

// TestHostsWithSkew: a KairosDB node that lists itself is seen, whatever clock is
// ahead or behind by a minute.
func TestHostsWithSkew(t *testing.T) {
	b := newBench(t, ownKeyspace(), DefaultWriteConfig(), "")
	now := time.Now()
	if err := b.ks.Session.Exec(b.ctx, &cql.Statement{Name: "test", Text: "INSERT INTO service_index (service, service_key, key, value, mtime) VALUES ('_Hosts', 'Active', ?, 'kairos1', now())"},
		now.Add(-25*time.Second).UnixMilli(), "guid"); err != nil {
		t.Fatal(err)
	}
	for skew, want := range map[time.Duration]bool{-time.Minute: true, 0: true, 40 * time.Second: true, time.Minute: true, 20 * time.Minute: false} {
		d := b.deleter(DefaultDeleteConfig(), func() time.Time { return now.Add(skew) })
		if keep, err := d.keepFrom(b.ctx); err != nil || (keep != math.MaxInt64) != want {
			t.Errorf("%v ahead: index rows from %d on are kept, %v; want any: %v", skew, keep, err, want)
		}
	}
}

// TestTwoLives: two nodes begin a row time at the same moment, one with samples that
// live for ever, the clock of the other, whose samples expire, is ahead.
func TestTwoLives(t *testing.T) {
	for round := range 10 {
		b := newBench(t, schema.DefaultConfig(), DefaultWriteConfig(), "")
		now := time.Now().UnixMilli()
		keep, short := longSeries(b.name("m"), "host", "keep"), longSeries(b.name("m"), "host", "short")
		ahead := b.newWriter(DefaultWriteConfig(), func() time.Time { return time.Now().Add(40 * time.Second) })
		var writes sync.WaitGroup
		writes.Go(func() {
			if err := ahead.write(b.ctx, now, new(memory).longs(short, 100, now)); err != nil {
				t.Error(err)
			}
		})
		writes.Go(func() {
			time.Sleep(time.Duration(round) * time.Millisecond)
			if err := b.writer.write(b.ctx, now, new(memory).longs(keep, 0, now)); err != nil {
				t.Error(err)
			}
		})
		writes.Wait()
		row := b.ks.Spec.RowTime(now)
		state, err := rowkey.ReadState(b.ctx, b.ks, rowkey.Partition{Metric: b.name("m"), TimeMS: row})
		if err != nil || state.ExpirySec != rowkey.Forever {
			t.Errorf("round %d: expires at %d, %v", round, state.ExpirySec, err)
		}
		// A row has no TTL that can be asked for: whether it lives for ever shows when
		// an equal one is written for a second, under a lower timestamp.
		for _, key := range []string{"keep", "short"} {
			var ttl *int
			if _, err := b.ks.Session.One(b.ctx, &cql.Statement{Name: "test", Text: "SELECT TTL(changed) FROM varve_row_state WHERE metric = ? AND row_time = ?"}, []any{b.name("m"), row}, &ttl); err != nil || ttl != nil {
				t.Errorf("round %d, %s: the state lives for %v s, %v", round, key, ttl, err)
			}
		}
	}
}

// TestExpiredPartitions: nothing of row keys stays when all has expired.
func TestExpiredPartitions(t *testing.T) {
	c := schema.DefaultConfig()
	c.RowWidth = 1000
	b := newBench(t, c, DefaultWriteConfig(), "")
	now := time.Now().UnixMilli()
	src := new(memory)
	for i := range 20 {
		src.longs(longSeries(b.name(fmt.Sprint("m", i)), "host", "a"), 2, now)
	}
	b.write(src)
	left := func() string {
		return fmt.Sprint(len(b.rows("SELECT DISTINCT metric, table_name, row_time FROM row_keys", 3)), b.count("data_points"), b.count("row_key_time_index"), b.count("varve_row_state"))
	}
	deadline := time.Now().Add(30 * time.Second)
	for left() != "0 0 0 0" && time.Now().Before(deadline) {
		time.Sleep(200 * time.Millisecond)
	}
	if got := left(); got != "0 0 0 0" {
		t.Errorf("partitions of row_keys, samples, row times, states: %s", got)
	}
}

// TestDeletesByRuns: a delete of many series of a metric leaves few tombstones, in
// row_keys and in the inverted index: Cassandra refuses to read many.
func TestDeletesByRuns(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultWriteConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	metric := b.name("wide")
	src := new(memory)
	n := 6 * runsFrom // in 4 shards
	for i := range n {
		dc := "a"
		if i%500 == 7 {
			dc = "b"
		}
		src.longs(longSeries(metric, "all", "x", "dc", dc, "n", fmt.Sprint(i)), 0, someTime)
	}
	b.write(src)
	b.counts.take()
	b.delete(d, store.Deletion{Metric: metric, Matchers: []model.Matcher{oneOf("dc", "a")}, Range: model.AllTime})
	got := b.counts.take()
	if runs := got["delete_row_key_run"]; runs == 0 || got["delete_row_key"] > 0 {
		t.Errorf("statements %v", got)
	}
	if tags := got["delete_tag_row_run"]; tags == 0 {
		t.Errorf("statements %v", got)
	}
	for _, m := range [][]model.Matcher{nil, {oneOf("dc", "b")}, {oneOf("all", "x")}} {
		if found := b.found(metric, m...); len(found) != n/500 {
			t.Errorf("%v: %d series are found, want %d", m, len(found), n/500)
		}
	}
	if found := b.found(metric, oneOf("dc", "a")); len(found) != 0 {
		t.Errorf("%d deleted series are found", len(found))
	}
	// Those that went can come back.
	nextMillisecond()
	b.write(src)
	if found := b.found(metric, oneOf("all", "x")); len(found) != n {
		t.Errorf("%d of %d series are found again", len(found), n)
	}
}

// TestWalkOfCoveredPartitions: old row times that are covered cost a walk nothing.
func TestWalkOfCoveredPartitions(t *testing.T) {
	b := newBench(t, ownKeyspace(), DefaultWriteConfig(), "")
	src := new(memory)
	for i := range 60 {
		src.longs(longSeries(b.name(fmt.Sprint("m", i%3)), "host", "a"), 0, someTime-int64(i/3)*b.ks.Spec.Width)
	}
	b.write(src)
	c, err := NewCoverer(b.ks, CoverConfig{Interval: 24 * time.Hour}, b.reader(), CoverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b.counts.take()
	for range 2 {
		if err := c.walk(b.ctx); err != nil {
			t.Fatal(err)
		}
		if n := total(b.counts.take()); n > 10 {
			t.Errorf("a walk over 60 covered partitions of 3 metrics takes %d statements", n)
		}
	}
}

// TestRowKeyBesideWholeDelete: a delete of a whole metric, of which another node has
// removed a row key and a third one has written a new series since it looked for rows,
// leaves the new one.
func TestRowKeyBesideWholeDelete(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultWriteConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	metric := b.name("m")
	one, two, late := longSeries(metric, "k", "1"), longSeries(metric, "k", "2"), longSeries(metric, "k", "3")
	b.write(new(memory).longs(one, 0, someTime).longs(two, 0, someTime))
	other := b.newWriter(DefaultWriteConfig(), time.Now)
	var once sync.Once
	stamp := b.stamp + 1
	b.counts.before = func(statement string) {
		if statement != listRowTimes.Name {
			return
		}
		once.Do(func() {
			b.exec(deleteRowKey.Text, metric, schema.DataPoints, b.ks.Spec.RowTime(someTime), string(two.Type), cql.TagMap{Tags: two.Tags})
			if err := other.write(b.ctx, time.Now().UnixMilli()+1000, new(memory).longs(late, 0, someTime)); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond) // the announcement's timestamp is above that of its index rows
		})
	}
	if err := d.Delete(b.ctx, stamp, store.Deletion{Metric: metric, Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	if found := b.found(metric); len(found) != 1 || found[0].Series != late {
		t.Errorf("found %v", found)
	}
}

// TestLivesWithoutOwnTables: where nothing says how long the index rows of others have
// to live, samples that live for a short time do not shorten those of others.
func TestLivesWithoutOwnTables(t *testing.T) {
	c := schema.DefaultConfig()
	c.RowWidth = 3000
	b := newBench(t, c, DefaultWriteConfig(), "")
	b.ks.Tables.Own = false
	metric := b.name("m")
	at := b.ks.Spec.RowTime(time.Now().UnixMilli())
	b.writer = b.newWriter(DefaultWriteConfig(), time.Now)
	b.write(new(memory).longs(longSeries(metric, "k", "long"), 0, at))
	b.writer = b.newWriter(DefaultWriteConfig(), time.Now) // another node, or after a restart
	b.write(new(memory).longs(longSeries(metric, "k", "short"), 5, at))
	time.Sleep(time.Until(time.UnixMilli(at).Add(10 * time.Second))) // what is left of a row, and the row's width
	found := b.found(metric, model.Matcher{Tag: "k", Values: []string{"long"}})
	if len(found) != 1 {
		t.Errorf("found %v after the samples of another series have expired", found)
	}
}

// TestLastKairosDBNode: what the last KairosDB node has removed before it ended is put
// back, although none runs when it is looked for, and so is what gets samples later.
func TestLastKairosDBNode(t *testing.T) {
	b := newBench(t, ownKeyspace(), DefaultWriteConfig(), "")
	clock := time.Now()
	now := func() time.Time { return clock }
	b.writer = b.newWriter(DefaultWriteConfig(), now)
	watch := b.watch(b.deleter(DefaultDeleteConfig(), now))
	used, later := longSeries(b.name("now"), "k", "v"), longSeries(b.name("later"), "k", "v")
	b.exec("INSERT INTO service_index (service, service_key, key, value, mtime) VALUES ('_Hosts', 'Active', 'guid', 'kairos1', now())")
	b.write(new(memory).longs(used, 0, someTime).longs(later, 0, someTime))
	interval := 10 * time.Minute
	clock = clock.Add(time.Minute)
	watch.Look(b.ctx, 0)
	nextMillisecond()
	for _, s := range []model.Series{used, later} {
		b.exec(deleteRowKey.Text, s.Metric, schema.DataPoints, b.ks.Spec.RowTime(someTime), string(s.Type), cql.TagMap{Tags: s.Tags})
	}
	nextMillisecond()
	b.write(new(memory).longs(used, 0, someTime+1))
	for range 8 {
		clock = clock.Add(interval / 4)
		watch.Look(b.ctx, interval)
	}
	if found := b.found(used.Metric); len(found) != 1 {
		t.Errorf("found %v", found)
	}
	b.write(new(memory).longs(later, 0, someTime+1))
	if found := b.found(later.Metric); len(found) != 1 {
		t.Errorf("found %v of a series that got samples later", found)
	}
	b.counts.take()
	clock = clock.Add(interval)
	watch.Look(b.ctx, interval)
	if n := total(b.counts.take()); n > 1 {
		t.Errorf("%d statements, although no KairosDB node runs", n)
	}
}

// TestNodeWithoutOwnTables: a node that opened the keyspace before it had Varve's tables
// adds row keys to a partition that another one has begun in the inverted index.
func TestNodeWithoutOwnTables(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultWriteConfig(), "")
	metric := b.name("m")
	b.write(new(memory).longs(longSeries(metric, "k", "1"), 0, someTime))
	now := b.ks
	var err error
	if b.ks, err = schema.Open(b.ctx, b.ks.Session, schema.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	b.ks.Tables.Own = false
	b.writer, b.ks = b.newWriter(DefaultWriteConfig(), time.Now), now
	b.write(new(memory).longs(longSeries(metric, "k", "2"), 0, someTime))
	b.write(new(memory).longs(longSeries(metric, "k", "3"), 0, someTime))
	for _, value := range []string{"1", "2", "3"} {
		if found := b.found(metric, model.Matcher{Tag: "k", Values: []string{value}}); len(found) != 1 {
			t.Errorf("found %v of series %s", found, value)
		}
	}
}
