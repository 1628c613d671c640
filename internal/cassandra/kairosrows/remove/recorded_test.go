package remove

import (
	"encoding/json"
	"testing"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
)

// What is recorded of a deletion is that deletion, and text that nobody has
// recorded is an error.
func TestRecordedDeletion(t *testing.T) {
	pattern, err := model.NewPattern("a.*")
	if err != nil {
		t.Fatal(err)
	}
	one := keyspacetest.LongSeries("m", "k", "v")
	for _, del := range []store.Deletion{
		{Metric: "m", Range: model.AllTime},
		{Metric: "m", Range: model.TimeRange{StartMS: -5, EndMS: 7}, Matchers: []model.Matcher{{Tag: "k", Values: []string{"v"}, Patterns: []*model.Pattern{pattern}}}},
		store.DeletionOf(one, model.TimeRange{StartMS: 1, EndMS: 2}),
	} {
		value, err := json.Marshal(recordedDeletion{del.Range.StartMS, del.Range.EndMS, layout.SaveDeletion(del)})
		if err != nil {
			t.Fatal(err)
		}
		stampMS, got, err := parseRecord("0000018bcfe568ff-ABC", string(value))
		if err != nil || stampMS != 0x18bcfe568ff || got.Metric != del.Metric || got.Range != del.Range || describe(got) != describe(del) {
			t.Errorf("%d, %v, %v; want %v", stampMS, describe(got), err, describe(del))
		}
		if (got.Only == nil) != (del.Only == nil) || got.Only != nil && *got.Only != *del.Only {
			t.Errorf("of one series: %v, want %v", got.Only, del.Only)
		}
	}
	for key, value := range map[string]string{"x-1": `{"deletion":{"metric":"m"}}`, "0001-1": `{}`, "0002-1": `[`, "": ``,
		"0003-1": `{"deletion":{"metric":"m","matchers":[{"tag":"t","patterns":["("]}]}}`} {
		if _, del, err := parseRecord(key, value); err == nil {
			t.Errorf("%s %s: %v", key, value, del)
		}
	}
}
