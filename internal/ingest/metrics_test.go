package ingest_test

import (
	"slices"
	"testing"

	"varve/internal/ingest/ingesttest"
)

// TestWaitsAreShownFromTheStart: a scrape has each reason to wait before the first wait.
func TestWaitsAreShownFromTheStart(t *testing.T) {
	_, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() != "varve_ingest_waits_total" {
			continue
		}
		for _, m := range f.Metric {
			got = append(got, m.Label[0].GetValue())
		}
	}
	if want := []string{"bodies", "buffers", "names", "rate", "samples"}; !slices.Equal(got, want) {
		t.Errorf("varve_ingest_waits_total has %q, want %q", got, want)
	}
}
