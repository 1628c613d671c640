package read

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/collectors"
	"varve/internal/model"
	"varve/internal/store"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
)

// TestWideMetricByPattern: a question for few of very many series keeps what
// matches, not what is looked through.
func TestWideMetricByPattern(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	metric := b.Name("wide")
	b.FillKeys(metric, keyspacetest.CityTime(0), wideKeys(3000))
	config := readConfig()
	config.PostingsCacheBytes = 256 << 10 // four of them do not hold the metric
	reader, err := New(b.KS, config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	reader.widest = int64(config.PostingsCacheBytes) / 4
	look := reader.Look()
	for range 2 {
		for text, want := range map[string]int{"123[45]": 2, "1?[0-9]": 20, ".*": 3000, "nobody": 0} {
			sel := store.Selection{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{{Tag: "customer", Patterns: []*model.Pattern{keyspacetest.Pattern(t, text)}}}}
			found, err := look.Lookup(b.Ctx, sel)
			if err != nil || len(found) != want {
				t.Errorf("%s: %d series, %v; want %d", text, len(found), err, want)
			}
		}
	}
	if n := reader.postings.size(); n > int64(config.PostingsCacheBytes) {
		t.Errorf("%d bytes are cached", n)
	}
	for _, p := range look.partitions {
		if p.full.loaded.Load() {
			t.Errorf("the query keeps %d row keys", len(p.full.value.keys))
		}
	}
	// Without a matcher all are wanted, and kept.
	if found, err := look.Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime}); err != nil || len(found) != 3000 {
		t.Errorf("%d series, %v", len(found), err)
	}
}

// wideKeys are row keys of a customer each, of one service.
func wideKeys(n int) []rowkey.Key {
	var keys []rowkey.Key
	for i := range n {
		keys = append(keys, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("customer", fmt.Sprint(i), "service", "gateway")})
	}
	return keys
}

// TestLimitOfWideUncovered is TestLimitOfWideMetric of row keys that KairosDB wrote.
func TestLimitOfWideUncovered(t *testing.T) {
	const n, limit = 8000, 10
	b := newReadBench(t, readConfig(), nil)
	metric := b.Name("wide")
	b.FillKairos(metric, keyspacetest.CityTime(0), wideKeys(n))
	service := keyspacetest.OneOf("service", "gateway")
	digits := model.Matcher{Tag: "customer", Patterns: []*model.Pattern{keyspacetest.Pattern(t, "[0-9]+")}}
	for _, matchers := range [][]model.Matcher{{service}, {service, digits}, {digits}} {
		for _, givenUp := range []bool{false, true} {
			b.reader.postings, b.reader.givenUp.until = newPostingsCache(1<<30, time.Now, collectors.Named("")), nil
			if givenUp {
				b.reader.givenUp.add(kindOf(metric, []literal{{name: "service"}}), time.Now())
			}
			look := b.reader.Look()
			_, err := look.Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime, Matchers: matchers, Limit: limit, LimitKey: "test.max"})
			if over := (*store.LimitError)(nil); !errors.As(err, &over) || over.Need <= limit {
				t.Errorf("%v: %v", matchers, err)
			}
			if rows := keyspacetest.CountsOf(look.Counts())["index_rows"]; rows > 1000 {
				t.Errorf("%v, scans given up %v: %d index rows are read", matchers, givenUp, rows)
			}
		}
	}
}

// TestWideMetricByTag: a question by tags keeps what matches of a partition that is too
// wide, however its row keys are found; one read serves all who ask at the same time.
func TestWideMetricByTag(t *testing.T) {
	const n = 3000
	b := newReadBench(t, readConfig(), nil)
	b.reader.widest = 16 << 10
	few := model.Matcher{Tag: "customer", Patterns: []*model.Pattern{keyspacetest.Pattern(t, "1?[0-9]")}}
	matchers := []model.Matcher{keyspacetest.OneOf("service", "gateway"), few}
	for _, way := range []string{"index", "scan", "whole"} {
		metric := b.Name(way)
		if way == "index" {
			b.FillKeys(metric, keyspacetest.CityTime(0), wideKeys(n))
		} else {
			b.FillKairos(metric, keyspacetest.CityTime(0), wideKeys(n))
		}
		if way == "whole" {
			b.reader.givenUp.add(kindOf(metric, []literal{{name: "service"}}), time.Now())
		}
		look := b.reader.Look()
		for range 2 {
			if found := b.lookup(look, store.Selection{Metric: metric, Range: model.AllTime, Matchers: matchers}); len(found) != 20 {
				t.Errorf("%s: %d series", way, len(found))
			}
		}
		kept := 0
		for _, p := range look.partitions {
			if p.full.loaded.Load() {
				kept += len(p.full.value.keys)
			}
			for _, list := range p.postings {
				kept += len(list.keys)
			}
		}
		if kept > 0 {
			t.Errorf("%s: the query keeps %d row keys", way, kept)
		}
	}
}

// TestIntake: of more row keys than are kept, each of several lookups gets its own, up to
// its limit.
func TestIntake(t *testing.T) {
	keys := wideKeys(1000)
	l := &Look{reader: &Reader{widest: 4 << 10}}
	pattern := func(text string) []model.Matcher {
		return []model.Matcher{{Tag: "customer", Patterns: []*model.Pattern{keyspacetest.Pattern(t, text)}}}
	}
	for _, repeats := range []bool{false, true} {
		some, many := newHarvest(wish{matchers: pattern("..7"), filter: model.NewFilter(pattern("..7")), limit: math.MaxInt, repeats: repeats}), newHarvest(wish{matchers: pattern(".*"), filter: model.NewFilter(pattern(".*")), limit: 50, repeats: repeats})
		in := l.newIntake(new(atomic.Int64), some, many)
		for _, k := range keys {
			if err := in.add(k, 40); err != nil {
				t.Fatal(err)
			}
			if repeats {
				in.add(k, 40)
			}
		}
		if list, err := in.end(nil); list != nil || !errors.Is(err, errMatchesOnly) {
			t.Errorf("%v, %v", list, err)
		}
		got := map[rowkey.Key]bool{}
		for _, k := range some.keys {
			got[k] = true
		}
		if len(got) != 90 || len(many.keys) <= 50 || len(many.keys) > 2*51+int(l.reader.widest)/40 || !many.full() || some.full() {
			t.Errorf("repeated %v: %d and %d row keys", repeats, len(got), len(many.keys))
		}
		one := l.newIntake(new(atomic.Int64), newHarvest(wish{matchers: pattern(".*"), filter: model.NewFilter(pattern(".*")), limit: 50, repeats: repeats}))
		for i, k := range keys {
			err := one.add(k, 1)
			if errors.Is(err, errEnough) != (i == 50) || i == 50 {
				break
			}
		}
		if _, err := one.end(errEnough); !errors.Is(err, errMatchesOnly) || len(one.harvests[0].keys) != 51 {
			t.Errorf("repeated %v: %v, %d row keys of 50", repeats, err, len(one.harvests[0].keys))
		}
	}
}

// TestLimitOfWideMetric: of more series than a selection may have, little more than
// that is read, also through the inverted index.
func TestLimitOfWideMetric(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	metric := b.Name("wide")
	const n = 8000
	b.FillKeys(metric, keyspacetest.CityTime(0), wideKeys(n))
	digits := model.Matcher{Tag: "customer", Patterns: []*model.Pattern{keyspacetest.Pattern(t, "[0-9]+")}}
	service := keyspacetest.OneOf("service", "gateway")
	for _, test := range []struct {
		matchers []model.Matcher
		limit    int
		most     int64 // of index rows that are read
	}{
		{nil, 10, 20},
		{[]model.Matcher{service}, 1, int64(b.KS.IndexShards) * (maxVerified + 1)},
		{[]model.Matcher{service}, 1200, int64(b.KS.IndexShards) * 1201},
		{[]model.Matcher{service, digits}, 1, int64(b.KS.IndexShards) * (maxVerified + 1)},
		{[]model.Matcher{service}, n - 1, 2 * n},
		{[]model.Matcher{service}, n, 2 * n},
		{nil, n, 2 * n},
	} {
		b.reader.postings = newPostingsCache(1<<30, time.Now, collectors.Named(""))
		for range 2 {
			look := b.reader.Look()
			found, err := look.Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime, Matchers: test.matchers, Limit: test.limit, LimitKey: "test.max"})
			limit := (*store.LimitError)(nil)
			if test.limit == n && (err != nil || len(found) != n) || test.limit < n && !errors.As(err, &limit) {
				t.Errorf("%+v: %d series, %v", test, len(found), err)
			}
			if rows := keyspacetest.CountsOf(look.Counts())["index_rows"]; rows > test.most+5 {
				t.Errorf("%+v: %d index rows are read", test, rows)
			}
		}
	}
}
