package write

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/store"
)

// TestLostAnnouncements: a reader that finds a number missing assumes that anything may have
// been removed.
func TestLostAnnouncements(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), DefaultConfig(), "")
	teller := b.newWriter(DefaultConfig(), time.Now).deletes
	k := newKnown(1000)
	clock := time.Now()
	a := newAnnouncements(b.KS, k, func() time.Time { return clock })
	if err := a.begin(b.Ctx); err != nil {
		t.Fatal(err)
	}
	forgets := func(what string, want ...string) {
		t.Helper()
		epoch := k.now()
		if err := a.look(b.Ctx); err != nil {
			t.Fatal(err)
		}
		metrics, all, _ := k.since(epoch)
		got := slices.Collect(maps.Keys(metrics))
		if all {
			got = append(got, "everything")
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: forgets %v, want %v", what, got, want)
		}
	}
	tell := func(s rowkey.Span) (stamp int64) {
		t.Helper()
		stamp, err := teller.announce(b.Ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		return stamp
	}
	forgets("nothing")
	stamp := tell(rowkey.Span{Metric: "a b", LowMS: 1, HighMS: 2})
	forgets("one", "a b")
	if a.stamp() <= stamp {
		t.Error("index rows are not written above an announced removal")
	}
	forgets("none since")
	for i := range int64(rowkey.AnnouncementSlots) {
		stamp = tell(rowkey.Span{Metric: "m", LowMS: i, HighMS: i})
	}
	epoch := k.now()
	forgets("all slots", "m")
	if n := k.now() - epoch; n != rowkey.AnnouncementSlots {
		t.Errorf("%d of %d announcements are seen", n, rowkey.AnnouncementSlots)
	}
	for range rowkey.AnnouncementSlots + 1 {
		stamp = tell(rowkey.Span{Metric: "m", LowMS: 0, HighMS: 0})
	}
	forgets("one was overwritten before it was seen", "everything")
	if a.stamp() <= stamp {
		t.Error("index rows are not written above removals that were not seen")
	}
	forgets("none since")
	clock = clock.Add(rowkey.MaxUnlooked + time.Minute)
	forgets("silent for too long", "everything")
	clock = clock.Add(-time.Hour)
	forgets("the clock was set back", "everything")
	b.ExecNow("INSERT INTO service_index (service, service_key, key, value) VALUES ('_Varve', 'Deletes', 'later/0', 'what a later version writes')")
	forgets("cannot be read", "everything")
	forgets("still cannot be read", "everything")
}

// TestWatchOfFullCache: what KairosDB deletes is put back too if other row keys have filled the
// cache since samples relied on it.
func TestWatchOfFullCache(t *testing.T) {
	c := DefaultConfig()
	c.IndexCache = 1000
	b := newBench(t, schema.DefaultConfig(), c, "")
	watch, err := NewWatch(b.writer, nil, func(context.Context) (bool, error) { return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	metric, row := b.Name("m"), b.KS.Spec.RowTime(keyspacetest.SomeTime)
	src := keyspacetest.ManySeries(metric, 100)
	b.write(src)
	for _, s := range src.All {
		key, err := rowkey.Partition{Metric: s.Metric, TimeMS: row}.DataKey(rowkey.Of(s))
		if err != nil {
			t.Fatal(err)
		}
		b.ExecNow("DELETE FROM data_points WHERE key = ?", key)
	}
	b.ExecNow("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type >= ?", metric, schema.DataPoints, row, "")
	keyspacetest.NextMillisecond()
	b.write(src)
	if found := lookup.Series(b.Bench, metric); len(found) != 0 {
		t.Fatalf("found before it is looked for: %v", found)
	}
	b.write(keyspacetest.ManySeries(b.Name("others"), 1000))
	if n := b.writer.known.missed(); n != 0 {
		t.Errorf("%d row keys will not be looked at", n)
	}
	watch.Look(b.Ctx, 0)
	if found := lookup.Series(b.Bench, metric); len(found) != 100 {
		t.Errorf("%d of 100 series are found", len(found))
	}
	// What does not fit is counted.
	for i := range 5 {
		b.write(keyspacetest.ManySeries(b.Name(fmt.Sprint("more", i)), 900))
	}
	if n := b.writer.known.missed(); n < 1000 {
		t.Errorf("%d row keys count as not looked at", n)
	}
}

// TestWatchOfForgotten: what KairosDB deletes is put back too if its partition was forgotten since
// samples relied on it, because of a removal that others announced, or by a probe. None of them
// writes the index rows of a row that gets no more samples.
func TestWatchOfForgotten(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), DefaultConfig(), "")
	watch, err := NewWatch(b.writer, nil, func(context.Context) (bool, error) { return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	other := b.newWriter(DefaultConfig(), time.Now)
	row := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	for i, test := range []struct {
		name    string
		forgets func(rowkey.Partition)
	}{
		{"announcement", func(p rowkey.Partition) {
			if _, err := other.Announce(b.Ctx, rowkey.Span{Metric: p.Metric, LowMS: row, HighMS: row}); err != nil {
				t.Fatal(err)
			}
			if err := b.writer.deletes.look(b.Ctx); err != nil {
				t.Fatal(err)
			}
		}},
		{"probe", func(p rowkey.Partition) {
			b.writer.probed = time.Time{}
			if err := b.writer.probe(b.Ctx, map[rowkey.Partition]struct{}{p: {}}); err != nil {
				t.Fatal(err)
			}
		}},
		{"rules", func(rowkey.Partition) {
			if err := b.writer.SetTagIndex(nil); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		metric := b.Name(test.name)
		src := keyspacetest.ManySeries(metric, 10)
		b.write(src)
		b.ExecNow("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type >= ?", metric, schema.DataPoints, row, "")
		test.forgets(rowkey.Partition{Metric: metric, TimeMS: row})
		if rows, _, known := b.writer.known.part(rowkey.Partition{Metric: metric, TimeMS: row}); known {
			t.Fatalf("%s: %d rows are known", test.name, rows)
		}
		if i%2 == 0 { // some get samples, and are known again
			b.write(keyspacetest.ManySeries(metric, 3))
		}
		watch.Look(b.Ctx, 0)
		if found := lookup.Series(b.Bench, metric); len(found) != 10 {
			t.Errorf("%s: %d of 10 series are found", test.name, len(found))
		}
	}
	if n := b.writer.known.missed(); n != 0 {
		t.Errorf("%d row keys count as not looked at", n)
	}
}

// TestWatchEnds: a watch that ends waits until the removals of a KairosDB whose clock is ahead do
// not hide what it writes.
func TestWatchEnds(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	watch, err := NewWatch(b.writer, nil, func(context.Context) (bool, error) { return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	metric, row := b.Name("m"), b.KS.Spec.RowTime(keyspacetest.SomeTime)
	b.write(keyspacetest.ManySeries(metric, 10))
	ahead := time.Now().Add(time.Second).UnixMilli()
	if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: "DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type >= ?"},
		ahead, metric, schema.DataPoints, row, ""); err != nil {
		t.Fatal(err)
	}
	watch.Close()
	if found := lookup.Series(b.Bench, metric); len(found) != 10 {
		t.Errorf("%d of 10 series are found", len(found))
	}
}

// TestTwoLives: two nodes begin a row time at the same moment, one with samples that
// live for ever, the clock of the other, whose samples expire, is ahead.
func TestTwoLives(t *testing.T) {
	for round := range 10 {
		b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
		now := time.Now().UnixMilli()
		keep, short := keyspacetest.LongSeries(b.Name("m"), "host", "keep"), keyspacetest.LongSeries(b.Name("m"), "host", "short")
		ahead := b.newWriter(DefaultConfig(), func() time.Time { return time.Now().Add(40 * time.Second) })
		var writes sync.WaitGroup
		writes.Go(func() {
			if err := ahead.WriteSource(b.Ctx, now, new(keyspacetest.Memory).Longs(short, 100, now)); err != nil {
				t.Error(err)
			}
		})
		writes.Go(func() {
			time.Sleep(time.Duration(round) * time.Millisecond)
			if err := b.writer.WriteSource(b.Ctx, now, new(keyspacetest.Memory).Longs(keep, 0, now)); err != nil {
				t.Error(err)
			}
		})
		writes.Wait()
		row := b.KS.Spec.RowTime(now)
		state, err := rowkey.ReadState(b.Ctx, b.KS, rowkey.Partition{Metric: b.Name("m"), TimeMS: row})
		if err != nil || state.ExpirySec != rowkey.Forever {
			t.Errorf("round %d: expires at %d, %v", round, state.ExpirySec, err)
		}
		// A row has no TTL that can be asked for: whether it lives for ever shows when
		// an equal one is written for a second, under a lower timestamp.
		for _, key := range []string{"keep", "short"} {
			var ttl *int
			if _, err := b.KS.Session.One(b.Ctx, &cql.Statement{Name: "test", Text: "SELECT TTL(changed) FROM varve_row_state WHERE metric = ? AND row_time = ?"}, []any{b.Name("m"), row}, &ttl); err != nil || ttl != nil {
				t.Errorf("round %d, %s: the state lives for %v s, %v", round, key, ttl, err)
			}
		}
	}
}

// TestExpiredPartitions: nothing of row keys stays when all has expired.
func TestExpiredPartitions(t *testing.T) {
	c := schema.DefaultConfig()
	c.RowWidth = 1000
	b := newBench(t, c, DefaultConfig(), "")
	now := time.Now().UnixMilli()
	src := new(keyspacetest.Memory)
	for i := range 20 {
		src.Longs(keyspacetest.LongSeries(b.Name(fmt.Sprint("m", i)), "host", "a"), 2, now)
	}
	b.write(src)
	left := func() string {
		return fmt.Sprint(len(b.Rows("SELECT DISTINCT metric, table_name, row_time FROM row_keys", 3)), b.Count("data_points"), b.Count("row_key_time_index"), b.Count("varve_row_state"))
	}
	deadline := time.Now().Add(2 * time.Minute)
	for left() != "0 0 0 0" && time.Now().Before(deadline) {
		time.Sleep(200 * time.Millisecond)
	}
	if got := left(); got != "0 0 0 0" {
		t.Errorf("partitions of row_keys, samples, row times, states: %s", got)
	}
}

// TestLivesWithoutOwnTables: where nothing says how long the index rows of others have
// to live, samples that live for a short time do not shorten those of others.
func TestLivesWithoutOwnTables(t *testing.T) {
	c := schema.DefaultConfig()
	c.RowWidth = 3000
	b := newBench(t, c, DefaultConfig(), "")
	b.KS.Tables.Own = false
	metric := b.Name("m")
	at := b.KS.Spec.RowTime(time.Now().UnixMilli())
	b.writer = b.newWriter(DefaultConfig(), time.Now)
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "k", "long"), 0, at))
	b.writer = b.newWriter(DefaultConfig(), time.Now) // another node, or after a restart
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "k", "short"), 5, at))
	time.Sleep(time.Until(time.UnixMilli(at).Add(10 * time.Second))) // what is left of a row, and the row's width
	found := lookup.Series(b.Bench, metric, model.Matcher{Tag: "k", Values: []string{"long"}})
	if len(found) != 1 {
		t.Errorf("found %v after the samples of another series have expired", found)
	}
}

// TestNodeWithoutOwnTables: a node that opened the keyspace before it had Varve's tables
// adds row keys to a partition that another one has begun in the inverted index.
func TestNodeWithoutOwnTables(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	metric := b.Name("m")
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "k", "1"), 0, keyspacetest.SomeTime))
	now := b.KS
	var err error
	if b.KS, err = schema.Open(b.Ctx, b.KS.Session, schema.DefaultConfig(), nil); err != nil {
		t.Fatal(err)
	}
	b.KS.Tables.Own = false
	b.writer, b.KS = b.newWriter(DefaultConfig(), time.Now), now
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "k", "2"), 0, keyspacetest.SomeTime))
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "k", "3"), 0, keyspacetest.SomeTime))
	for _, value := range []string{"1", "2", "3"} {
		if found := lookup.Series(b.Bench, metric, model.Matcher{Tag: "k", Values: []string{value}}); len(found) != 1 {
			t.Errorf("found %v of series %s", found, value)
		}
	}
}

// TestOwnTablesVanish: while the inverted index is missing, no sample of a new series is
// dropped. An index that is made again does not count as complete.
func TestOwnTablesVanish(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), DefaultConfig(), "")
	cqltest.Drop(t, b.KS.Session)
	metric := b.Name("m")
	b.write(keyspacetest.ManySeries(metric, 10))
	reopen := func() error {
		_, err := schema.Open(b.Ctx, b.KS.Session, keyspacetest.OwnKeyspace(), nil)
		return err
	}
	cqltest.Must(t, b.KS.Session, "DROP TABLE "+b.KS.Name+".varve_row_index")
	fresh := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "host", "fresh"), 0, keyspacetest.SomeTime)
	for range 2 {
		err := b.writer.WriteSource(b.Ctx, time.Now().UnixMilli(), fresh)
		if refused := refusalOf(err); refused == nil || refused.Reason != cql.NoSuchTable {
			t.Fatalf("write without the table: %v", err)
		}
	}
	if refusals := b.writer.Refusals(); len(refusals) > 0 {
		t.Errorf("dropped: %+v", refusals)
	}
	var refused *cql.TableError
	if err := reopen(); !errors.As(err, &refused) || !strings.Contains(err.Error(), "drop varve_row_state too") {
		t.Errorf("opened without the index: %v", err)
	}
	cqltest.Must(t, b.KS.Session, "DROP TABLE "+b.KS.Name+".varve_row_state")
	if err := reopen(); err != nil {
		t.Fatal(err)
	}
	if err := b.writer.WriteSource(b.Ctx, time.Now().UnixMilli(), fresh); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"fresh", "h00003"} {
		found, err := lookup.Reader(b.Bench).Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{keyspacetest.OneOf("host", host)}})
		if err != nil || len(found) != 1 {
			t.Errorf("%s: %v, %v", host, found, err)
		}
	}
}
