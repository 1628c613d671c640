package storetest

import (
	"testing"
)

func TestReference(t *testing.T) {
	Run(t, func(testing.TB) *Harness { return referenceHarness(testOrigin, 0) })
}

func TestReferenceMetamorphic(t *testing.T) {
	RunMetamorphic(t,
		Config{"one-sample-blocks", func(testing.TB) *Harness { return referenceHarness(testOrigin, 1) }},
		Config{"large-blocks", func(testing.TB) *Harness { return referenceHarness(testOrigin, 10_000) }})
}
