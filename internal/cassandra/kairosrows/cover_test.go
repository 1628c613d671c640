package kairosrows

import (
	"fmt"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/store"
)

// kairosRow inserts a row key as KairosDB does.
func (b *readBench) kairosRow(stampMS int64, metric string, rowTimeMS int64, tags model.Tags) {
	b.t.Helper()
	b.execAt(stampMS, "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())",
		metric, tableName, rowTimeMS, string(model.TypeLong), cql.TagMap{Tags: tags})
	b.execAt(stampMS, "INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, tableName, rowTimeMS)
}

// TestCoverage: what KairosDB wrote is found in row_keys, until a pass has added it to
// the inverted index; then again when KairosDB has written more.
func TestCoverage(t *testing.T) {
	config := readConfig()
	config.CoverRate = 0 // passes are made by hand
	b := newReadBench(t, config, nil)
	metric, row := b.metric("m"), cityTime(0)
	for i := range 10 {
		b.stamp++
		b.kairosRow(b.stamp, metric, row, model.MustTags("host", fmt.Sprint("h", i), "dc", "lga"))
	}
	sel := store.Selection{Metric: metric, Range: model.TimeRange{StartMS: row, EndMS: row + 1}, Matchers: []model.Matcher{oneOf("host", "h3")}}
	look := func(want Trace, series int) {
		t.Helper()
		b.reader.postings = newPostingsCache(1<<20, 0, time.Now)
		l := b.reader.Look()
		if n := len(b.lookup(l, sel)); n != series {
			t.Errorf("%d series, want %d", n, series)
		}
		got := l.Trace()
		if got.IndexedPartitions != want.IndexedPartitions || got.ScannedPartitions != want.ScannedPartitions || got.FullPartitions != want.FullPartitions || got.UncoveredPartitions != want.UncoveredPartitions {
			t.Errorf("trace %+v, want %+v", got, want)
		}
	}
	cover := func() {
		t.Helper()
		if covered, err := b.reader.Cover(t.Context(), metric, row); err != nil || !covered {
			t.Fatalf("covered %v, %v", covered, err)
		}
	}
	uncovered, covered := Trace{ScannedPartitions: 1, UncoveredPartitions: 1}, Trace{IndexedPartitions: 1}
	look(uncovered, 1)
	cover()
	look(covered, 1)
	b.sent()
	cover()
	if n := total(b.sent()); n != 2 {
		t.Errorf("a pass over what is covered costs %d statements, want 2", n)
	}
	b.stamp++
	b.kairosRow(b.stamp, metric, row, model.MustTags("host", "h3", "dc", "fra"))
	look(uncovered, 2)
	cover()
	look(covered, 2)
	// KairosDB's delete is seen although nothing says that it was.
	b.exec("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?",
		metric, tableName, row, string(model.TypeLong), cql.TagMap{Tags: model.MustTags("host", "h3", "dc", "fra")})
	look(covered, 1)
}

// TestCoverageSettles: a partition into which KairosDB wrote a moment ago is not
// covered, since a node whose clock is behind may still add row keys there
// without moving mtime.
func TestCoverageSettles(t *testing.T) {
	config := readConfig()
	config.Settle = time.Minute
	config.CoverRate = 0
	b := newReadBench(t, config, nil)
	metric, row := b.metric("m"), cityTime(0)
	written := time.Now()
	b.kairosRow(written.UnixMilli(), metric, row, model.MustTags("host", "a"))
	for _, test := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {59 * time.Second, false}, {61 * time.Second, true}} {
		b.reader.now = func() time.Time { return written.Add(test.after) }
		covered, wait, err := b.reader.cover.cover(t.Context(), partKey{metric, row})
		if err != nil || covered != test.want || covered == (wait > 0) {
			t.Errorf("after %v: covered %v, come back in %v, %v", test.after, covered, wait, err)
		}
	}
}

// TestCoverageInBackground: a query that finds a partition not covered has it
// covered, and the walk finds the others.
func TestCoverageInBackground(t *testing.T) {
	config := readConfig()
	config.CoverInterval = 2 * time.Second
	b := newReadBench(t, config, nil)
	asked, walked, row := b.metric("asked"), b.metric("walked"), cityTime(0)
	for _, metric := range []string{asked, walked} {
		b.exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(metricNamesKey), metric, []byte{0})
		b.stamp++
		b.kairosRow(b.stamp, metric, row, model.MustTags("host", "a"))
	}
	b.lookup(nil, store.Selection{Metric: asked, Range: model.AllTime, Matchers: []model.Matcher{oneOf("host", "a")}})
	for _, metric := range []string{asked, walked} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			l := b.reader.Look()
			p := l.partition(metric, rowState{timeMS: row})
			states, err := l.readStateRows(t.Context(), span{metric, row, row})
			if err != nil {
				t.Fatal(err)
			}
			p.state = states[row]
			s, err := l.readStamp(t.Context(), p.key)
			if err != nil {
				t.Fatal(err)
			}
			if p.covered(s) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not covered", metric)
			}
		}
	}
}

// TestLivesOfIndexRows: they live as long as mtime and as those of Varve.
func TestLivesOfIndexRows(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, test := range []struct {
		left, expiry int64
		rows, state  int
	}{
		{0, 0, 0, 0},
		{0, forever, 0, 0},
		{1000, forever, 0, 0},
		{1000, 0, 1000 + coverMargin, 1000},
		{1000, now.Unix() + 10_000, 10_000, 1000},
		{model.MaxTTL, 0, model.MaxTTL, model.MaxTTL},
	} {
		if rows, state := (coverState{expirySec: test.expiry}).lives(test.left, now); rows != test.rows || state != test.state {
			t.Errorf("mtime lives %d s, index rows until %d: %d, %d, want %d, %d", test.left, test.expiry, rows, state, test.rows, test.state)
		}
	}
}
