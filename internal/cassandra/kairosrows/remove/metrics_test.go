package remove

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestOutcomesAreShownFromTheStart: a scrape has each outcome of delete jobs before the first job.
func TestOutcomesAreShownFromTheStart(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := newMetrics().Register(reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				got = append(got, l.GetValue())
			}
		}
	}
	if want := []string{"cancelled", "done", "failed"}; !slices.Equal(got, want) {
		t.Errorf("outcomes %q, want %q", got, want)
	}
}
