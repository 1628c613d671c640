package query

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store/reference"
)

// TestMetricsAreShownFromTheStart: a scrape has each value of a label that is known in
// advance before it first counts, so that queries of the first change see it.
func TestMetricsAreShownFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	New(reference.New(nil), DefaultConfig(), registry, time.Now)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				got[f.GetName()] = append(got[f.GetName()], l.GetValue())
			}
		}
	}
	for name, want := range map[string][]string{
		"varve_query_queries_total": {"busy", "cancelled", "failed", "input", "limit", "ok", "timeout"},
		"varve_query_text_bytes":    {"large", "operator", "small"},
		"varve_query_text_waiting":  {"large", "operator", "small"},
	} {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s has %q, want %q", name, got[name], want)
		}
	}
}
