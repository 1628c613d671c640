package graphite

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"testing"

	"varve/internal/graphite/graphitetest"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// A staleness marker is null in Graphite, and does not affect a point that has samples.
func TestMarkersOfStaleness(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	ref, err := s.store.Create(t.Context(), model.Series{Metric: "a.x", Type: model.TypeDouble})
	if err != nil {
		t.Fatal(err)
	}
	now := graphitetest.Clock.Unix() / 60 * 60
	stale := math.Float64frombits(model.StaleMarker)
	var b store.Batch
	b.Reset(s.store.Epoch())
	b.AddDouble(ref, (now-180)*1000, 3, 0)
	b.AddDouble(ref, (now-170)*1000, stale, 0)
	b.AddDouble(ref, (now-120)*1000, stale, 0)
	b.AddDouble(ref, (now-60)*1000, 5, 0)
	if err := s.store.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	w := s.ask("GET", "/render", url.Values{"target": {`summarize(a.x,"1min","sum",true)`}, "format": {"json"},
		"from": {fmt.Sprint(now - 181)}, "until": {fmt.Sprint(now - 1)}})
	var got []struct{ Datapoints [][2]*float64 }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 1 {
		t.Fatalf("%v: %d %s", err, w.Code, w.Body)
	}
	sum, points := 0.0, 0
	for _, p := range got[0].Datapoints {
		if p[0] != nil {
			sum, points = sum+*p[0], points+1
		}
	}
	if points != 2 || sum != 8 {
		t.Errorf("%s: want the points 3 and 5", w.Body)
	}
}
