package timeline

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/gate"
)

// TestLabelsAreShownFromTheStart: a scrape has each label before something is counted there.
func TestLabelsAreShownFromTheStart(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := newMetrics(&Engine{tails: gate.New(1)}).Register(reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
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
		"varve_timeline_events_rejected_total": {"input", "limit", "store"},
		"varve_timeline_tails_total":           {"behind", "closed"},
	} {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s has %q, want %q", name, got[name], want)
		}
	}
}
