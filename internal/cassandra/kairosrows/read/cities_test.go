package read

import (
	"flag"
	"runtime"
	"slices"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/collectors"
	"varve/internal/model"
	"varve/internal/store"
)

var cities = flag.Int("kairosrows.cities", 7_000, "row keys of each of the three row times in TestCities")

const cityRows = 3

// fillCities inserts n row keys for each of some row times as Varve would.
func (b *readBench) fillCities(metric string, n int) {
	b.T.Helper()
	for row := range cityRows {
		b.FillKeys(metric, keyspacetest.CityTime(row), keyspacetest.CityKeys(0, n))
	}
}

// TestCities: what a selective lookup costs does not depend on how many row keys
// the metric has.
func TestCities(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	began := time.Now()
	b.fillCities(b.Name("few"), 100)
	b.fillCities(b.Name("many"), *cities)
	t.Logf("%d row keys written in %v", cityRows*(*cities+100), time.Since(began))
	all := model.TimeRange{StartMS: keyspacetest.CityTime(0), EndMS: keyspacetest.CityTime(cityRows) - 1}
	cold := func() {
		b.reader.postings = newPostingsCache(int64(b.reader.config.PostingsCacheBytes), time.Now, collectors.Named(""))
	}
	for _, question := range []struct {
		name     string
		within   model.TimeRange
		matchers []model.Matcher
		found    int
	}{
		{"one city, one row", model.TimeRange{StartMS: keyspacetest.CityTime(0), EndMS: keyspacetest.CityTime(1) - 1}, []model.Matcher{keyspacetest.OneOf("city", "city-000077")}, 1},
		{"one city, three rows", all, []model.Matcher{keyspacetest.OneOf("city", "city-000077")}, 1},
		{"a city of its region", all, []model.Matcher{keyspacetest.OneOf("region", "region-17"), keyspacetest.OneOf("city", "city-000077")}, 1},
		{"three cities", all, []model.Matcher{keyspacetest.OneOf("city", "city-000001", "city-000002", "city-000099")}, 3},
	} {
		var sent [2][2]map[string]int
		for m, metric := range []string{"few", "many"} {
			sel := store.Selection{Metric: b.Name(metric), Matchers: question.matchers, Range: question.within}
			for i, state := range []string{"cold", "warm"} {
				var took []time.Duration
				for range 15 {
					if i == 0 {
						cold()
					}
					b.Counts.Take()
					began := time.Now()
					found := b.lookup(nil, sel)
					took = append(took, time.Since(began))
					if len(found) != question.found {
						t.Fatalf("%s of %s, %s: %d series", question.name, metric, state, len(found))
					}
					sent[m][i] = b.Counts.Take()
				}
				slices.Sort(took)
				t.Logf("%-22s %-4s %s: p50 %v, statements %d %v", question.name, metric, state, took[len(took)/2].Round(10*time.Microsecond), keyspacetest.Total(sent[m][i]), sent[m][i])
			}
		}
		if few, many := keyspacetest.Total(sent[0][0]), keyspacetest.Total(sent[1][0]); many > few {
			t.Errorf("%s: %d statements for %d row keys, %d for 100", question.name, many, *cities, few)
		}
		if c, w := keyspacetest.Total(sent[1][0]), keyspacetest.Total(sent[1][1]); w >= c {
			t.Errorf("%s: %d statements when nothing is known, %d after", question.name, c, w)
		}
	}
	b.twoEntries(all)
	b.wholeMetric(all)
}

// twoEntries: two entries of one metric in one request read the index once.
func (b *readBench) twoEntries(within model.TimeRange) {
	for _, matchers := range [][]model.Matcher{nil, {keyspacetest.OneOf("city", "city-000077")}} {
		b.reader.postings = newPostingsCache(0, time.Now, collectors.Named(""))
		b.Counts.Take()
		l := b.reader.Look()
		sel := store.Selection{Metric: b.Name("many"), Matchers: matchers, Range: within}
		began := time.Now()
		b.lookup(l, sel)
		first, one := time.Since(began), keyspacetest.Total(b.Counts.Take())
		if one == 0 {
			b.T.Error("no statements")
		}
		began = time.Now()
		b.lookup(l, sel)
		if again := keyspacetest.Total(b.Counts.Take()); again != 0 {
			b.T.Errorf("the second entry of a request costs %d statements, the first %d", again, one)
		}
		b.T.Logf("matchers %v: first entry %v, second %v", matchers, first, time.Since(began))
	}
}

// wholeMetric reads all row keys, and measures what keeping them takes.
func (b *readBench) wholeMetric(within model.TimeRange) {
	b.reader.postings = newPostingsCache(1<<30, time.Now, collectors.Named(""))
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
		found := b.lookup(l, store.Selection{Metric: b.Name("many"), Range: within})
		b.T.Logf("all %d series, %s: %v, %d statements; %+v", len(found), state, time.Since(began), keyspacetest.Total(b.Counts.Take()), keyspacetest.CountsOf(l.Counts()))
	}
	b.T.Logf("the cache says %d bytes, the heap grew by %d", b.reader.postings.size(), heap()-before)
	began := time.Now()
	found := b.lookup(nil, store.Selection{Metric: b.Name("many"), Range: within, Matchers: []model.Matcher{keyspacetest.OneOf("city", "city-000077")}})
	b.T.Logf("one city of cached row keys, first time: %v", time.Since(began))
	began = time.Now()
	b.lookup(nil, store.Selection{Metric: b.Name("many"), Range: within, Matchers: []model.Matcher{keyspacetest.OneOf("city", "city-000078")}})
	b.T.Logf("one city of cached row keys, again: %v, %d found", time.Since(began), len(found))
}

// TestKnownRowTimes: row_key_time_index is not read again for row times that were
// there a while ago. New ones, and those that are gone, are seen at once.
func TestKnownRowTimes(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	metric := b.Name("m")
	one := store.Selection{Metric: metric, Matchers: []model.Matcher{keyspacetest.OneOf("city", "city-000007")}, Range: model.TimeRange{StartMS: keyspacetest.CityTime(0), EndMS: keyspacetest.CityTime(1) - 1}}
	two := one
	two.Range.EndMS++
	check := func(what string, sel store.Selection, rows, times int) {
		t.Helper()
		b.Counts.Take()
		found := b.lookup(nil, sel)
		if n := b.Counts.Take()["read_row_times"]; n != times {
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
	b.FillKeys(metric, keyspacetest.CityTime(0), keyspacetest.CityKeys(0, 20))
	check("first", one, 1, 1)
	check("again", one, 1, 0)
	check("of two one is known", two, 1, 1)
	b.FillKeys(metric, keyspacetest.CityTime(1), keyspacetest.CityKeys(0, 20))
	check("a new row time", two, 2, 1)
	check("both known", two, 2, 0)
	b.Exec("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?", metric, schema.DataPoints, keyspacetest.CityTime(0))
	b.Exec("DELETE FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?", metric, schema.DataPoints, keyspacetest.CityTime(0))
	check("one is gone", two, 1, 1)
}
