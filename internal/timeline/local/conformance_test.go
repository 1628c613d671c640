package local

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"varve/internal/timeline"
	"varve/internal/timeline/timelinetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, fs vfs.FS, o Options) *Shelf {
	s, err := Open(fs, "timelines", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	t.Run("whole", func(t *testing.T) {
		timelinetest.Run(t, func(t *testing.T) timeline.Shelf { return open(t, vfs.NewMem(), Options{}) })
	})
	t.Run("by bucket", func(t *testing.T) {
		timelinetest.Run(t, func(t *testing.T) timeline.Shelf {
			return timelinetest.Buckets(open(t, vfs.NewMem(), Options{}))
		})
	})
}
