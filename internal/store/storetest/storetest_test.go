package storetest

import (
	"testing"
	"time"
)

func TestReference(t *testing.T) {
	Run(t, func(testing.TB) *Harness { return referenceHarness(time.UnixMilli(1_700_000_000_000), 0) })
}
