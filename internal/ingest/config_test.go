package ingest

import (
	"math"
	"testing"

	"varve/internal/units"
)

// TestFollowers: constants that follow a setting are what was measured at the defaults, grow
// with the setting, and have bounds.
func TestFollowers(t *testing.T) {
	c := DefaultConfig()
	c.MaxSeriesMemory = 512 * units.MiB
	c.BodyMemory = 256 * units.MiB
	if c.MaxBody() != 64*units.MiB || c.maxUnpacked() != 128*units.MiB || c.newSeriesBurst() != 1_000_000 || c.AliasMemory() != 128<<20 {
		t.Errorf("by default: %v, %v, %d, %d", c.MaxBody(), c.maxUnpacked(), c.newSeriesBurst(), c.AliasMemory())
	}
	c.BodyMemory, c.NewSeriesPerSecond, c.MaxSeriesMemory = 64*units.MiB, 5, 64*units.MiB
	if c.MaxBody() != 16*units.MiB || c.maxUnpacked() != 32*units.MiB || c.newSeriesBurst() != 100 || c.AliasMemory() != 16<<20 {
		t.Errorf("smaller: %v, %v, %d, %d", c.MaxBody(), c.maxUnpacked(), c.newSeriesBurst(), c.AliasMemory())
	}
	c.BodyMemory, c.NewSeriesPerSecond, c.MaxSeriesMemory = 100*units.GiB, math.MaxInt, 1024*units.GiB
	if c.maxUnpacked() != 2*units.GiB || c.newSeriesBurst() <= 0 || c.AliasMemory() != 128<<20 {
		t.Errorf("larger: %v, %d, %d", c.maxUnpacked(), c.newSeriesBurst(), c.AliasMemory())
	}
	c.BodyMemory = 1
	if c.MaxBody() != 1 || c.maxUnpacked() != 1 {
		t.Errorf("smallest: %v, %v", c.MaxBody(), c.maxUnpacked())
	}
}
