package read

import (
	"fmt"
	"testing"

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
