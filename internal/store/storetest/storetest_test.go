package storetest

import (
	"slices"
	"testing"

	"varve/internal/store"
	"varve/internal/store/reference"
)

func TestReference(t *testing.T) {
	Run(t, func(testing.TB) *Harness { return referenceHarness(testOrigin, 0) })
}

func TestReferenceMetamorphic(t *testing.T) {
	RunMetamorphic(t,
		Config{"one-sample-blocks", func(testing.TB) *Harness { return referenceHarness(testOrigin, 1) }},
		Config{"large-blocks", func(testing.TB) *Harness { return referenceHarness(testOrigin, 10_000) }})
}

// TestBareHarness runs what does not sleep with nothing but Open: a store in
// real time that can neither flush nor merge nor crash.
func TestBareHarness(t *testing.T) {
	bare := func(testing.TB) *Harness {
		var kept *reference.Store
		return &Harness{Open: func(testing.TB) store.Store {
			if kept == nil {
				kept = reference.New(nil)
			} else {
				kept = kept.Reopen()
			}
			return kept
		}}
	}
	ran := 0
	for _, g := range groups() {
		if slices.Contains([]string{"expiry", "blocks", "stats", "series"}, g.name) {
			continue
		}
		for _, c := range g.tests {
			failure, skipped := record(t, func(tb testing.TB) { c.runOn(tb, bare) })
			if failure != "" {
				t.Errorf("%s/%s:\n%s", g.name, c.name, failure)
			}
			if !skipped {
				ran++
			}
		}
	}
	if ran < 100 {
		t.Errorf("only %d tests ran", ran)
	}
	for seed := range uint64(3) {
		if report := runRound(t, Config{"bare", bare}, seed, 150); report != "" {
			t.Error(report)
		}
	}
}
