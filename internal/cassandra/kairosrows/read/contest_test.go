package read

import (
	"fmt"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/collectors"
	"varve/internal/model"
	"varve/internal/store"
)

// TestRace: whichever matcher wins, and however many pages that takes, the
// lookup finds what matches all, and reads little more than the winner's keys.
func TestRace(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	metric, row := b.Name("m"), keyspacetest.CityTime(0)
	const n = 6000
	var keys []rowkey.Key
	for i := range n {
		keys = append(keys, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("half", fmt.Sprint(i%2), "third", fmt.Sprint(i%3), "tenth", fmt.Sprint(i%10), "all", "x")})
	}
	for i := range keys { // each a series of its own
		keys[i].Tags = model.MustTags(append(flat(keys[i].Tags), "id", fmt.Sprint(i))...)
	}
	b.FillKeys(metric, row, keys)
	for _, test := range []struct {
		matchers []model.Matcher
		mostRows int64 // of index rows that are read
	}{
		{[]model.Matcher{keyspacetest.OneOf("half", "0"), keyspacetest.OneOf("third", "1")}, n/3 + 4*(racedFirst+racedNext) + 2*n/6 + 10},
		{[]model.Matcher{keyspacetest.OneOf("all", "x"), keyspacetest.OneOf("half", "1")}, n/2 + 4*(racedFirst+racedNext) + 10},
		{[]model.Matcher{keyspacetest.OneOf("half", "0", "1"), keyspacetest.OneOf("third", "0", "2")}, n},
		{[]model.Matcher{keyspacetest.OneOf("all", "x"), keyspacetest.OneOf("tenth", "3"), keyspacetest.OneOf("id", "3", "13", "4")}, 8*(racedFirst+racedNext) + 20},
		{[]model.Matcher{keyspacetest.OneOf("all", "x"), keyspacetest.OneOf("tenth", "none")}, 4*(racedFirst+racedNext) + 2},
		{[]model.Matcher{keyspacetest.OneOf("all", "x", "y")}, n + 10},
	} {
		want := 0
		for _, k := range keys {
			if model.MatchesAll(test.matchers, k.Tags) {
				want++
			}
		}
		for _, cache := range []int64{1 << 20, 0} {
			b.reader.postings = newPostingsCache(cache, time.Now, collectors.Named(""))
			l := b.reader.Look()
			for range 2 {
				if got := len(b.lookup(l, store.Selection{Metric: metric, Matchers: test.matchers, Range: model.TimeRange{StartMS: row, EndMS: row}})); got != want {
					t.Errorf("%v: %d series, want %d", test.matchers, got, want)
				}
			}
			if trace := keyspacetest.CountsOf(l.Counts()); trace["partitions_full"] > 0 || trace["partitions_indexed"] != 1 {
				t.Errorf("%v: %+v", test.matchers, trace)
			} else if trace["index_rows"] > test.mostRows+int64(want)+10 {
				t.Errorf("%v: %d index rows, at most %d", test.matchers, trace["index_rows"], test.mostRows+int64(want)+10)
			}
		}
	}
}

func flat(tags model.Tags) []string {
	var all []string
	for name, value := range tags.All() {
		all = append(all, name, value)
	}
	return all
}

// TestVerifyInOnePage: a statement that looks whether row keys of the inverted index exist takes one page.
func TestVerifyInOnePage(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	metric, row := b.Name("m"), keyspacetest.CityTime(0)
	const n = 2*verifyBatch + 10
	var keys []rowkey.Key
	for i := range n {
		keys = append(keys, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("all", "x", "id", fmt.Sprint(i))})
	}
	b.FillKeys(metric, row, keys)
	b.Counts.Take()
	found := b.lookup(nil, store.Selection{Metric: metric, Matchers: []model.Matcher{keyspacetest.OneOf("all", "x")}, Range: model.TimeRange{StartMS: row, EndMS: row}})
	if pages := b.Counts.Take()[readTheseRowKeys.Name]; len(found) != n || pages != 3 {
		t.Errorf("%d series in %d pages, want %d in 3", len(found), pages, n)
	}
}
