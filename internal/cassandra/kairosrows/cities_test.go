package kairosrows

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/work"
)

var cities = flag.Int("kairosrows.cities", 7_000, "row keys of each of the three row times in TestCities")

const cityRows = 3

// cityTime is a row time of TestCities.
func cityTime(row int) int64 {
	return rowtime.Default.RowTime(1_500_508_800_000) + int64(row)*rowtime.DefaultWidth
}

// fillCities inserts n row keys for each of some row times as Varve would.
func (b *readBench) fillCities(metric string, n int) {
	b.t.Helper()
	for row := range cityRows {
		b.fillKeys(metric, cityTime(row), cityKeys(0, n))
	}
}

// fillKeys inserts row keys as Varve would.
func (b *readBench) fillKeys(metric string, rowTimeMS int64, keys []rowkey.Key) {
	b.t.Helper()
	b.exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, schema.DataPoints, rowTimeMS)
	b.execAt(1, "INSERT INTO row_keys (metric, table_name, row_time, mtime) VALUES (?, ?, ?, ?)", metric, schema.DataPoints, rowTimeMS, schema.WroteHere)
	b.exec("INSERT INTO varve_row_state (metric, row_time, kairos_mtime) VALUES (?, ?, ?)", metric, rowTimeMS, schema.WroteHere)
	b.exec("UPDATE varve_row_state SET changed = now() WHERE metric = ? AND row_time = ?", metric, rowTimeMS)
	insertKey := &cql.Statement{Name: "test", Text: "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags) VALUES (?, ?, ?, ?, ?)"}
	pages := slices.Collect(slices.Chunk(keys, 2000))
	err := work.Parallel(b.t.Context(), 8, len(pages), func(ctx context.Context, i int) error {
		for _, joined := range rowkey.JoinBatches(rowkey.TagRowBatches(metric, rowTimeMS, slices.Values(pages[i]), b.ks.IndexShards, 0), b.ks.Session.Place) {
			if _, err := rowkey.SendJoined(ctx, b.ks.Session.Batch, b.stamp, joined); err != nil {
				return err
			}
		}
		for part := range slices.Chunk(pages[i], 200) {
			var entries []cql.Entry
			for _, k := range part {
				entries = append(entries, cql.Entry{Statement: insertKey, Args: []any{metric, schema.DataPoints, rowTimeMS, string(k.Type), cql.TagMap{Tags: k.Tags}}})
			}
			if err := b.ks.Session.Batch(ctx, b.stamp, entries); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func cityKeys(from, to int) []rowkey.Key {
	var keys []rowkey.Key
	for i := from; i < to; i++ {
		keys = append(keys, rowkey.Key{Type: model.TypeDouble, Tags: model.MustTags("city", fmt.Sprintf("city-%06d", i), "region", fmt.Sprint("region-", i%30))})
	}
	return keys
}

func oneOf(tag string, values ...string) model.Matcher {
	return model.Matcher{Tag: tag, Values: values}
}

// TestCities: what a selective lookup costs does not depend on how many row keys
// the metric has.
func TestCities(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	began := time.Now()
	b.fillCities(b.metric("few"), 100)
	b.fillCities(b.metric("many"), *cities)
	t.Logf("%d row keys written in %v", cityRows*(*cities+100), time.Since(began))
	all := model.TimeRange{StartMS: cityTime(0), EndMS: cityTime(cityRows) - 1}
	cold := func() { b.reader.postings = newPostingsCache(int64(b.reader.config.PostingsCacheBytes), time.Now) }
	for _, question := range []struct {
		name     string
		within   model.TimeRange
		matchers []model.Matcher
		found    int
	}{
		{"one city, one row", model.TimeRange{StartMS: cityTime(0), EndMS: cityTime(1) - 1}, []model.Matcher{oneOf("city", "city-000077")}, 1},
		{"one city, three rows", all, []model.Matcher{oneOf("city", "city-000077")}, 1},
		{"a city of its region", all, []model.Matcher{oneOf("region", "region-17"), oneOf("city", "city-000077")}, 1},
		{"three cities", all, []model.Matcher{oneOf("city", "city-000001", "city-000002", "city-000099")}, 3},
	} {
		var sent [2][2]map[string]int
		for m, metric := range []string{"few", "many"} {
			sel := store.Selection{Metric: b.metric(metric), Matchers: question.matchers, Range: question.within}
			for i, state := range []string{"cold", "warm"} {
				var took []time.Duration
				for range 15 {
					if i == 0 {
						cold()
					}
					b.sent()
					began := time.Now()
					found := b.lookup(nil, sel)
					took = append(took, time.Since(began))
					if len(found) != question.found {
						t.Fatalf("%s of %s, %s: %d series", question.name, metric, state, len(found))
					}
					sent[m][i] = b.sent()
				}
				slices.Sort(took)
				t.Logf("%-22s %-4s %s: p50 %v, statements %d %v", question.name, metric, state, took[len(took)/2].Round(10*time.Microsecond), total(sent[m][i]), sent[m][i])
			}
		}
		if few, many := total(sent[0][0]), total(sent[1][0]); many > few {
			t.Errorf("%s: %d statements for %d row keys, %d for 100", question.name, many, *cities, few)
		}
		if c, w := total(sent[1][0]), total(sent[1][1]); w >= c {
			t.Errorf("%s: %d statements when nothing is known, %d after", question.name, c, w)
		}
	}
	b.twoEntries(all)
	b.wholeMetric(all)
}

// twoEntries: two entries of one metric in one request read the index once.
func (b *readBench) twoEntries(within model.TimeRange) {
	for _, matchers := range [][]model.Matcher{nil, {oneOf("city", "city-000077")}} {
		b.reader.postings = newPostingsCache(0, time.Now)
		b.sent()
		l := b.reader.Look()
		sel := store.Selection{Metric: b.metric("many"), Matchers: matchers, Range: within}
		began := time.Now()
		b.lookup(l, sel)
		first, one := time.Since(began), total(b.sent())
		if one == 0 {
			b.t.Error("no statements")
		}
		began = time.Now()
		b.lookup(l, sel)
		if again := total(b.sent()); again != 0 {
			b.t.Errorf("the second entry of a request costs %d statements, the first %d", again, one)
		}
		b.t.Logf("matchers %v: first entry %v, second %v", matchers, first, time.Since(began))
	}
}

// wholeMetric reads all row keys, and measures what keeping them takes.
func (b *readBench) wholeMetric(within model.TimeRange) {
	b.reader.postings = newPostingsCache(1<<30, time.Now)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for _, state := range []string{"cold", "warm"} {
		l := b.reader.Look()
		began := time.Now()
		found := b.lookup(l, store.Selection{Metric: b.metric("many"), Range: within})
		b.t.Logf("all %d series, %s: %v, %d statements; %+v", len(found), state, time.Since(began), total(b.sent()), l.Trace())
	}
	b.t.Logf("the cache says %d bytes, the heap grew by %d", b.reader.postings.size(), heap()-before)
	began := time.Now()
	found := b.lookup(nil, store.Selection{Metric: b.metric("many"), Range: within, Matchers: []model.Matcher{oneOf("city", "city-000077")}})
	b.t.Logf("one city of cached row keys, first time: %v", time.Since(began))
	began = time.Now()
	b.lookup(nil, store.Selection{Metric: b.metric("many"), Range: within, Matchers: []model.Matcher{oneOf("city", "city-000078")}})
	b.t.Logf("one city of cached row keys, again: %v, %d found", time.Since(began), len(found))
}

// TestKnownRowTimes: row_key_time_index is not read again for row times that were
// there a while ago. New ones, and those that are gone, are seen at once.
func TestKnownRowTimes(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	metric := b.metric("m")
	one := store.Selection{Metric: metric, Matchers: []model.Matcher{oneOf("city", "city-000007")}, Range: model.TimeRange{StartMS: cityTime(0), EndMS: cityTime(1) - 1}}
	two := one
	two.Range.EndMS++
	check := func(what string, sel store.Selection, rows, times int) {
		t.Helper()
		b.sent()
		found := b.lookup(nil, sel)
		if n := b.sent()["read_row_times"]; n != times {
			t.Errorf("%s: row times read %d times, want %d", what, n, times)
		}
		got := 0
		for _, s := range found {
			got += len(s.Rows)
		}
		if got != rows {
			t.Errorf("%s: %d rows, want %d", what, got, rows)
		}
	}
	b.fillKeys(metric, cityTime(0), cityKeys(0, 20))
	check("first", one, 1, 1)
	check("again", one, 1, 0)
	check("of two one is known", two, 1, 1)
	b.fillKeys(metric, cityTime(1), cityKeys(0, 20))
	check("a new row time", two, 2, 1)
	check("both known", two, 2, 0)
	b.exec("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?", metric, schema.DataPoints, cityTime(0))
	b.exec("DELETE FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?", metric, schema.DataPoints, cityTime(0))
	check("one is gone", two, 1, 1)
}
