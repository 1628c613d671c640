package embedded

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"varve/internal/diskfs/crashfs"
	"varve/internal/store"
	"varve/internal/store/storetest"
	"varve/internal/units"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, memHarness(DefaultConfig()))
}

func TestMetamorphic(t *testing.T) {
	storetest.RunMetamorphic(t,
		storetest.Config{Name: "default", New: memHarness(DefaultConfig())},
		storetest.Config{Name: "tiny", New: memHarness(tinyConfig())},
		storetest.Config{Name: "interval", New: memHarness(intervalConfig())},
	)
}

// tinyConfig makes everything happen often: checkpoints after a few samples,
// merges of two files, hour-wide partitions, no page kept.
func tinyConfig() Config {
	c := DefaultConfig()
	c.RowWidth = time.Hour
	c.CheckpointSamples = 40
	c.MergeFiles = 2
	c.PageCacheBytes = 0
	c.MaintenanceInterval = 10 * time.Millisecond
	c.Log.SegmentBytes = 64 * units.KiB
	return c
}

// intervalConfig acknowledges before the log is synced.
func intervalConfig() Config {
	c := DefaultConfig()
	c.Log.Durability = "interval"
	return c
}

// memHarness runs a store on a file system in memory that can lose what was
// not synced. What has expired is removed also just after a start.
func memHarness(cfg Config) storetest.NewHarness {
	cfg.LateHold = 0
	return func(tb testing.TB) *storetest.Harness {
		fs := crashfs.New()
		clock := storetest.NewClock(time.UnixMilli(1_700_000_000_000))
		h := &storetest.Harness{Now: clock.Now, Advance: clock.Advance}
		var open *Store
		h.Open = func(tb testing.TB) store.Store {
			s, err := Open(fs, "data", cfg, Options{Now: clock.Now})
			if err != nil {
				tb.Fatalf("open store: %v", err)
			}
			open = s
			return s
		}
		h.Flush = func(tb testing.TB, s store.Store) {
			if err := s.(*Store).checkpoint(); err != nil {
				tb.Errorf("checkpoint: %v", err)
			}
		}
		h.Merge = func(tb testing.TB, s store.Store) {
			if err := s.(*Store).Compact(context.Background()); err != nil {
				tb.Errorf("compact: %v", err)
			}
		}
		if cfg.Log.Durability == "fsync" {
			h.Crash = func(tb testing.TB, s store.Store) {
				crashed := fs.CrashClone(vfs.CrashCloneCfg{})
				s.Close()
				fs = crashed
			}
		}
		tb.Cleanup(func() {
			if open != nil {
				open.Close()
			}
		})
		return h
	}
}
