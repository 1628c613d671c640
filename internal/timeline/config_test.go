package timeline

import (
	"testing"
	"time"

	"varve/internal/units"
	"varve/internal/units/unitstest"
)

// TestBounds: 0 is out of range for a setting whose documentation gives it no meaning. It does not
// stand for the default.
func TestBounds(t *testing.T) {
	check := unitstest.Bounds(t, DefaultConfig)
	check("payload_bytes_max", func(c *Config, v int64) { c.PayloadBytesMax = units.Bytes(v) }, []int64{1 << 10, 16 << 20}, []int64{-1, 0, 1<<10 - 1, 16<<20 + 1})
	check("timelines_max", func(c *Config, v int64) { c.TimelinesMax = int(v) }, []int64{1, 10_000_000}, []int64{-1, 0, 10_000_001})
	check("rate_max", func(c *Config, v int64) { c.RateMax = int(v) }, []int64{0, 1}, []int64{-1})
	check("tails_max", func(c *Config, v int64) { c.TailsMax = int(v) }, []int64{1, 100_000}, []int64{-1, 0, 100_001})
	check("lead_time", func(c *Config, v int64) { c.LeadTime = time.Duration(v) }, []int64{1e9, 3600e9}, []int64{-1, 0, 1e9 - 1, 3600e9 + 1})
	check("spool_bytes_max", func(c *Config, v int64) { c.SpoolBytesMax = units.Bytes(v) }, []int64{16 << 20, 1 << 40}, []int64{-1, 0, 16<<20 - 1, 1<<40 + 1})
}

// TestEngineWithoutSettings: an engine that is given no settings has the defaults.
func TestEngineWithoutSettings(t *testing.T) {
	e, err := Open(&quietShelf{}, Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if want := DefaultConfig(); e.config.TailsMax != want.TailsMax || e.config.LeadTime != want.LeadTime {
		t.Errorf("the settings are %+v", e.config)
	}
}
