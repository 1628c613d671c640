package read

import (
	"errors"
	"fmt"
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
	var keys []rowkey.Key
	for i := range 3000 {
		keys = append(keys, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("customer", fmt.Sprint(i), "service", "gateway")})
	}
	b.FillKeys(metric, keyspacetest.CityTime(0), keys)
	config := readConfig()
	config.PostingsCacheBytes = 256 << 10 // four of them do not hold the metric
	reader, err := New(b.KS, config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
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

// TestLimitOfWideMetric: of more series than a selection may have, little more than
// that is read, also through the inverted index.
func TestLimitOfWideMetric(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	metric := b.Name("wide")
	const n = 8000
	var keys []rowkey.Key
	for i := range n {
		keys = append(keys, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("customer", fmt.Sprint(i), "service", "gateway")})
	}
	b.FillKeys(metric, keyspacetest.CityTime(0), keys)
	service := keyspacetest.OneOf("service", "gateway")
	for _, test := range []struct {
		matchers []model.Matcher
		limit    int
		most     int64 // of index rows that are read
	}{
		{nil, 10, 20},
		{[]model.Matcher{service}, 1, int64(b.KS.IndexShards) * (maxVerified + 1)},
		{[]model.Matcher{service}, 1200, int64(b.KS.IndexShards) * 1201},
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
