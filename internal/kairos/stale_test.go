package kairos

import (
	"math"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// A staleness marker, which no KairosDB client can write, is not a point of an answer,
// and is not counted.
func TestMarkersOfStaleness(t *testing.T) {
	s := startServer(t)
	ref, err := s.store.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("h", "a"), Type: model.TypeDouble})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.store.Epoch())
	b.AddDouble(ref, 1, 2.5, 0)
	b.AddDouble(ref, 2, math.Float64frombits(model.StaleMarker), 0)
	b.AddDouble(ref, 3, 1.5, 0)
	b.AddDouble(ref, 4, math.Float64frombits(model.StaleMarker), 0)
	if err := s.store.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for ask, want := range map[string]string{
		`"name":"m"`:                          "[[1,2.5],[3,1.5]]",
		`"name":"m","limit":2,"order":"desc"`: "[[3,1.5],[1,2.5]]",
		`"name":"m","aggregators":[{"name":"count","sampling":{"value":1,"unit":"hours"}}]`: "[[1,2]]",
		`"name":"m","aggregators":[{"name":"min","sampling":{"value":1,"unit":"hours"}}]`:   "[[1,1.5]]",
		`"name":"m","aggregators":[{"name":"last","sampling":{"value":1,"unit":"hours"}}]`:  "[[3,1.5]]",
	} {
		if resp, answer := s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{`+ask+`}]}`); resp.StatusCode != 200 || !strings.Contains(answer, `"values":`+want) {
			t.Errorf("%s: %d %s, want %s", ask, resp.StatusCode, answer, want)
		}
	}
}
