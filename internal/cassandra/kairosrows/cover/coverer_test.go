package cover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/store"
)

// TestCoverage: what KairosDB wrote is found in row_keys, until a pass has added it to
// the inverted index; then again when KairosDB has written more.
// A bench is a keyspace on the shared node, and a Reader of it.
type bench struct {
	*keyspacetest.Bench
	reader *read.Reader
}

// newBench opens the shared keyspace, or one of its own. Its statements have write
// timestamps of long ago.
func newBench(t *testing.T, own bool) *bench {
	t.Helper()
	b := &bench{}
	if own {
		b.Bench = keyspacetest.Loaded(t, func(*cql.Session) {})
	} else {
		b.Bench = keyspacetest.New(t, schema.DefaultConfig(), "")
	}
	b.Stamp = 1_700_000_000_000
	b.forget()
	return b
}

func (b *bench) lookup(l *read.Look, sel store.Selection) []read.SeriesRows {
	b.T.Helper()
	found, err := l.Lookup(b.T.Context(), sel)
	if err != nil {
		b.T.Fatal(err)
	}
	return found
}

// forget puts a new Reader in the place of the one that remembers row keys.
func (b *bench) forget() {
	b.T.Helper()
	var err error
	c := read.DefaultConfig()
	c.Settle = 0
	if b.reader, err = read.New(b.KS, c, read.Options{}); err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(b.reader.Close)
}

// coverer is a Coverer of the keyspace.
func (b *bench) coverer(rate int, now func() time.Time) *Coverer {
	b.T.Helper()
	c, err := New(b.KS, Config{Rate: rate, Interval: 24 * time.Hour}, b.reader, Options{Now: now})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(c.Close)
	return c
}

// TestCoverage: what a pass has been over is answered by the inverted index, until
// KairosDB adds row keys.
func TestCoverage(t *testing.T) {
	b := newBench(t, false)
	metric, row, passes := b.Name("m"), keyspacetest.CityTime(0), b.coverer(0, nil)
	for i := range 10 {
		b.Stamp++
		b.KairosRow(b.Stamp, metric, row, model.MustTags("host", fmt.Sprint("h", i), "dc", "lga"))
	}
	sel := store.Selection{Metric: metric, Range: model.TimeRange{StartMS: row, EndMS: row + 1}, Matchers: []model.Matcher{keyspacetest.OneOf("host", "h3")}}
	look := func(want map[string]int64, series int) {
		t.Helper()
		b.forget()
		l := b.reader.Look()
		if n := len(b.lookup(l, sel)); n != series {
			t.Errorf("%d series, want %d", n, series)
		}
		got := keyspacetest.CountsOf(l.Counts())
		if got["partitions_indexed"] != want["partitions_indexed"] || got["partitions_scanned"] != want["partitions_scanned"] || got["partitions_full"] != want["partitions_full"] || got["partitions_uncovered"] != want["partitions_uncovered"] {
			t.Errorf("trace %+v, want %+v", got, want)
		}
	}
	cover := func() {
		t.Helper()
		if covered, err := passes.Cover(t.Context(), rowkey.Partition{Metric: metric, TimeMS: row}); err != nil || !covered {
			t.Fatalf("covered %v, %v", covered, err)
		}
	}
	uncovered, covered := map[string]int64{"partitions_scanned": 1, "partitions_uncovered": 1}, map[string]int64{"partitions_indexed": 1}
	look(uncovered, 1)
	cover()
	look(covered, 1)
	b.Counts.Take()
	cover()
	if n := keyspacetest.Total(b.Counts.Take()); n != 2 {
		t.Errorf("a pass over what is covered costs %d statements, want 2", n)
	}
	b.Stamp++
	b.KairosRow(b.Stamp, metric, row, model.MustTags("host", "h3", "dc", "fra"))
	look(uncovered, 2)
	cover()
	look(covered, 2)
	// KairosDB's delete is seen although nothing says that it was.
	b.Exec("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?",
		metric, schema.DataPoints, row, string(model.TypeLong), cql.TagMap{Tags: model.MustTags("host", "h3", "dc", "fra")})
	look(covered, 1)
}

// TestCoverageSettles: a partition into which KairosDB wrote a moment ago is not
// covered, since a node whose clock is behind may still add row keys there
// without moving mtime.
func TestCoverageSettles(t *testing.T) {
	b := newBench(t, false)
	metric, row, c := b.Name("m"), keyspacetest.CityTime(0), b.coverer(0, nil)
	c.config.Settle = time.Minute
	written := time.Now()
	b.KairosRow(written.UnixMilli(), metric, row, model.MustTags("host", "a"))
	for _, test := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {59 * time.Second, false}, {61 * time.Second, true}} {
		c.now = func() time.Time { return written.Add(test.after) }
		covered, wait, err := c.cover(t.Context(), rowkey.Partition{Metric: metric, TimeMS: row})
		if err != nil || covered != test.want || covered == (wait > 0) {
			t.Errorf("after %v: covered %v, come back in %v, %v", test.after, covered, wait, err)
		}
	}
}

// TestCoverageInBackground: a query that finds a partition not covered has it
// covered, and the walk finds the others.
func TestCoverageInBackground(t *testing.T) {
	b := newBench(t, false)
	asked, walked, row := b.Name("asked"), b.Name("walked"), keyspacetest.CityTime(0)
	for _, metric := range []string{asked, walked} {
		b.Exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), metric, []byte{0})
		b.Stamp++
		b.KairosRow(b.Stamp, metric, row, model.MustTags("host", "a"))
	}
	c, err := New(b.KS, Config{Rate: 1000, Interval: 2 * time.Second}, b.reader, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r, err := read.New(b.KS, read.DefaultConfig(), read.Options{Uncovered: c.Ask})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	b.lookup(r.Look(), store.Selection{Metric: asked, Range: model.AllTime, Matchers: []model.Matcher{keyspacetest.OneOf("host", "a")}})
	for _, metric := range []string{asked, walked} {
		p := rowkey.Partition{Metric: metric, TimeMS: row}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			state, err := rowkey.ReadState(t.Context(), b.KS, p)
			if err != nil {
				t.Fatal(err)
			}
			s, err := rowkey.ReadStamp(t.Context(), b.KS.Session, p, cql.Configured)
			if err != nil {
				t.Fatal(err)
			}
			if state.Covers(s) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not covered", metric)
			}
		}
	}
}

// TestCoverageWaitsForTheClock: until the clock is set, nothing is covered in the background.
func TestCoverageWaitsForTheClock(t *testing.T) {
	b := newBench(t, false)
	p := rowkey.Partition{Metric: b.Name("m"), TimeMS: keyspacetest.CityTime(0)}
	b.Stamp++
	b.KairosRow(b.Stamp, p.Metric, p.TimeMS, model.MustTags("host", "a"))
	asks, set := make(chan bool), make(chan bool)
	c, err := New(b.KS, Config{Rate: 1000, Interval: 24 * time.Hour}, b.reader, Options{ClockSet: func(ctx context.Context) error {
		select {
		case asks <- true:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-set:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.Ask(p)
	backlog := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.asked)
	}
	select {
	case <-asks:
	case <-time.After(time.Minute):
		t.Fatal("the clock is not waited for")
	}
	if n := backlog(); n != 1 || count(t, c.passes) != 0 {
		t.Errorf("before the clock is set, %d partitions wait and %d were covered", n, count(t, c.passes))
	}
	close(set)
	for deadline := time.Now().Add(time.Minute); count(t, c.passes) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the partition is not covered once the clock is set")
		}
	}
}

// TestPassGoesOn: a pass that was interrupted is left alone while it may be under
// way, and then gone on with where it was, unless KairosDB has added row keys.
func TestPassGoesOn(t *testing.T) {
	b := newBench(t, false)
	const pages, page = 4, 50
	for _, added := range []bool{false, true} {
		t.Run(fmt.Sprintf("added=%v", added), func(t *testing.T) {
			metric, row := b.Name(fmt.Sprint(added)), keyspacetest.CityTime(0)
			keys := keyspacetest.CityKeys(10, 10+pages*page)
			b.FillKairos(metric, row, keys)
			p := rowkey.Partition{Metric: metric, TimeMS: row}
			start := time.Now()
			coverer := func(clock func() time.Time) *Coverer {
				c := b.coverer(0, clock)
				c.page = page
				return c
			}
			// Each look at the clock is a coverSave later, until the process is killed.
			ctx, kill := context.WithCancel(t.Context())
			looks := 0
			first := coverer(func() time.Time {
				if looks++; looks == 4 {
					kill()
				}
				return start.Add(time.Duration(looks) * coverSave)
			})
			if covered, _, err := first.cover(ctx, p); err == nil || covered {
				t.Fatalf("covered %v, %v", covered, err)
			}
			pass := &coverPass{coverer: first, key: p}
			before, err := pass.progress(t.Context())
			if err != nil || before == nil || before.Keys != 2*page {
				t.Fatalf("progress %+v, %v", before, err)
			}
			late := keyspacetest.CityKeys(0, 1) // before all that were copied
			if added {
				b.Stamp++
				b.KairosRow(b.Stamp, metric, row, late[0].Tags)
			}
			second := coverer(func() time.Time { return before.Updated.Add(coverSilence - time.Second) })
			if covered, wait, err := second.cover(t.Context(), p); err != nil || covered || wait != time.Second {
				t.Errorf("while it may be under way: covered %v, wait %v, %v", covered, wait, err)
			}
			b.Counts.Take()
			third := coverer(func() time.Time { return before.Updated.Add(coverSilence) })
			if covered, wait, err := third.cover(t.Context(), p); err != nil || !covered {
				t.Errorf("after it: covered %v, wait %v, %v", covered, wait, err)
			}
			sent := b.Counts.Take()
			want := len(keys) - before.Keys + 1
			if added {
				want = len(keys) + 1
			}
			copied := keyspacetest.Value(t, third.keys)
			if int(copied) != want {
				t.Errorf("%v row keys were copied, want %d of %d; statements %v", copied, want, len(keys), sent)
			}
			for _, k := range append(late, keys[0], keys[before.Keys-1], keys[before.Keys], keys[len(keys)-1]) {
				city, _ := k.Tags.Get("city")
				l := b.reader.Look()
				found, trace := b.lookup(l, store.Selection{Metric: metric, Range: model.TimeRange{StartMS: row, EndMS: row + 1}, Matchers: []model.Matcher{keyspacetest.OneOf("city", city)}}), keyspacetest.CountsOf(l.Counts())
				if wanted := added || k != late[0]; (len(found) == 1) != wanted || trace["partitions_indexed"] != 1 {
					t.Errorf("%s: %d series, trace %+v", city, len(found), trace)
				}
			}
			if after, err := pass.progress(t.Context()); err != nil || after != nil {
				t.Errorf("left behind: %+v, %v", after, err)
			}
		})
	}
}

// TestPassOfNodeAhead: what a node has written down that is gone, and whose clock was hours
// ahead, keeps no partition from being covered until that time.
func TestPassOfNodeAhead(t *testing.T) {
	b := newBench(t, false)
	metric, row := b.Name("ahead"), keyspacetest.CityTime(0)
	b.FillKairos(metric, row, keyspacetest.CityKeys(0, 10))
	p := rowkey.Partition{Metric: metric, TimeMS: row}
	text, err := json.Marshal(&coverProgress{Node: "gone", Updated: time.Now().Add(3 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.KS.Set(t.Context(), schema.OwnService, coverService, progressKey(p), string(text)); err != nil {
		t.Fatal(err)
	}
	if covered, wait, err := b.coverer(0, time.Now).cover(t.Context(), p); err != nil || !covered {
		t.Errorf("covered %v, wait %v, %v", covered, wait, err)
	}
}

// TestPassOfNoUse: a pass ends when it sees that KairosDB adds row keys, and the
// partition rests.
func TestPassOfNoUse(t *testing.T) {
	b := newBench(t, false)
	metric, row := b.Name("m"), keyspacetest.CityTime(0)
	p := rowkey.Partition{Metric: metric, TimeMS: row}
	const page = 50
	b.FillKairos(metric, row, keyspacetest.CityKeys(0, 3*page))
	looks, start := 0, time.Now()
	c := b.coverer(1_000_000, nil)
	c.Close() // nothing in the background
	c.page = page
	c.now = func() time.Time {
		if looks++; looks == 3 {
			b.Stamp++
			b.KairosRow(b.Stamp, metric, row, model.MustTags("city", "late"))
			c.Ask(p) // as lookups do
		}
		return start.Add(time.Duration(looks) * coverSave)
	}
	covered, wait, err := c.cover(t.Context(), p)
	if err != nil || covered || wait < coverRest*coverSave || keyspacetest.Value(t, c.moved) != 1 {
		t.Errorf("covered %v, wait %v, %v", covered, wait, err)
	}
	if at := keyspacetest.Value(t, c.keys); at >= 3*page {
		t.Errorf("%v row keys were copied", at)
	}
	if state, err := rowkey.ReadState(t.Context(), c.ks, p); err != nil || state.KairosMtime != (cql.UUID{}) {
		t.Errorf("state %+v, %v", state, err)
	}
	c.coverOrPutOff(t.Context(), p)
	c.askAt(p, c.now().Add(wait)) // as coverOrPutOff does
	if c.Ask(p); !c.postponed(p) {
		t.Errorf("asked for again at %v", c.asked[p])
	}
	for range 200 {
		c.now()
	}
	if c.postponed(p) {
		t.Errorf("rests until %v", c.asked[p])
	}
	c.coverOrPutOff(t.Context(), p)
	if state, err := rowkey.ReadState(t.Context(), c.ks, p); err != nil || state.KairosMtime == (cql.UUID{}) {
		t.Errorf("after the rest: state %+v, %v", state, err)
	}
}

// TestLivesOfIndexRows: they live as long as mtime and as those of Varve.
func TestLivesOfIndexRows(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		left        *int
		expiry      int64
		rows, state int
	}{
		{nil, 0, 0, 0},
		{nil, rowkey.Forever, 0, 0},
		{new(1000), rowkey.Forever, 0, 0},
		{new(1000), 0, 1000 + coverMargin, 1000},
		{new(1000), now.Unix() + 10_000, 10_000, 1000},
		{new(model.MaxTTL), 0, model.MaxTTL, model.MaxTTL},
	} {
		if rows, state := livesOf(rowkey.State{ExpirySec: test.expiry}, rowkey.Stamp{TTL: test.left}, now); rows != test.rows || state != test.state {
			t.Errorf("mtime lives %v s, index rows until %d: %d, %d, want %d, %d", test.left, test.expiry, rows, state, test.rows, test.state)
		}
	}
}

// TestPassFails: a pass that fails is made again after a while, and counted.
func TestPassFails(t *testing.T) {
	b := newBench(t, true)
	c := b.coverer(1_000_000, nil)
	c.Close() // nothing in the background
	p := rowkey.Partition{Metric: b.Name("m"), TimeMS: keyspacetest.CityTime(0)}
	b.FillKairos(p.Metric, p.TimeMS, keyspacetest.CityKeys(0, 10))
	if err := b.KS.Session.Change(t.Context(), &cql.Statement{Name: "test", Text: "DROP TABLE varve_row_index"}); err != nil {
		t.Fatal(err)
	}
	c.coverOrPutOff(t.Context(), p)
	if at := time.Until(c.asked[p]); keyspacetest.Value(t, c.failures) != 1 || at <= 0 || at > retryAfter {
		t.Errorf("%v failures, again in %v", keyspacetest.Value(t, c.failures), at)
	}
	if _, wait, due := c.take(); due || wait <= 0 || wait > retryAfter {
		t.Errorf("due %v, in %v", due, wait)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	c.coverOrPutOff(done, p)
	if n := keyspacetest.Value(t, c.failures); n != 1 {
		t.Errorf("%v failures after the end of the process", n)
	}
}

// TestPassBesideRanges: a delete that removes index rows by ranges hides what a pass
// copies between them. The pass does not count, and the next one does.
func TestPassBesideRanges(t *testing.T) {
	b := newBench(t, false)
	metric, row := b.Name("m"), keyspacetest.CityTime(0)
	const page = 20
	var keys []rowkey.Key
	for i := range 4 * page {
		keys = append(keys, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("dc", "lga", "host", fmt.Sprintf("h%03d", i))})
	}
	b.FillKairos(metric, row, keys)
	start, looks := time.Now().Add(-time.Minute), 0
	c := b.coverer(1_000_000, nil)
	c.Close() // nothing in the background
	c.page = page
	deleted := func() {
		w, err := write.New(b.KS, write.DefaultConfig(), write.Options{})
		if err != nil {
			t.Fatal(err)
		}
		stampMS, err := w.Announce(t.Context(), rowkey.Span{Metric: metric, LowMS: row, HighMS: row})
		if err != nil {
			t.Fatal(err)
		}
		for shard := range b.KS.IndexShards {
			b.ExecAt(stampMS, "DELETE FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ? AND (data_type, tags) >= (?, ?) AND (data_type, tags) <= (?, ?)", slices.Concat([]any{metric, row, "dc", "lga", shard}, keys[0].Args(), keys[len(keys)-1].Args())...)
		}
	}
	c.now = func() time.Time {
		if looks++; looks == 3 {
			deleted()
		}
		return start.Add(time.Duration(looks) * time.Millisecond)
	}
	if covered, err := c.Cover(t.Context(), rowkey.Partition{Metric: metric, TimeMS: row}); err != nil || covered || looks < 3 {
		t.Errorf("beside a delete: covered %v, %v, %d looks", covered, err, looks)
	}
	if covered, err := c.Cover(t.Context(), rowkey.Partition{Metric: metric, TimeMS: row}); err != nil || !covered {
		t.Errorf("after it: covered %v, %v", covered, err)
	}
	sel := store.Selection{Metric: metric, Range: model.TimeRange{StartMS: row, EndMS: row + 1}, Matchers: []model.Matcher{keyspacetest.OneOf("dc", "lga")}}
	if n := len(b.lookup(b.reader.Look(), sel)); n != len(keys) {
		t.Errorf("%d series are found, want %d", n, len(keys))
	}
}

// TestWalkOfCoveredPartitions: old row times that are covered cost a walk nothing.
func TestWalkOfCoveredPartitions(t *testing.T) {
	b := newBench(t, true) // a keyspace of its own: a walk is over all metrics
	for m := range 3 {
		metric := b.Name(fmt.Sprint("m", m))
		b.Exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), metric, []byte{0})
		for i := range 20 {
			b.FillKeys(metric, keyspacetest.CityTime(i), keyspacetest.CityKeys(0, 1))
		}
	}
	c := b.coverer(0, nil)
	b.Counts.Take()
	for range 2 {
		if err := c.walk(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := keyspacetest.Total(b.Counts.Take()); n > 10 {
			t.Errorf("a walk over 60 covered partitions of 3 metrics takes %d statements", n)
		}
	}
}
