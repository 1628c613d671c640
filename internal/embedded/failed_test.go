package embedded

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/embedded/datadir"
)

// breaking is a file system whose calls fail while a condition is set.
func breaking(broken *atomic.Bool, fails func(op errorfs.Op) bool) vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && fails(op) {
			return errorfs.ErrInjected
		}
		return nil
	}))
}

// TestCompactWhoseLogKeepsFiles: a compaction that cannot remove the files that the log keeps for reuse ends
// before the checkpoint, which would write to one of them: a large one that stays as the current segment.
func TestCompactWhoseLogKeepsFiles(t *testing.T) {
	var broken atomic.Bool
	cfg := quietConfig("fsync")
	cfg.Log.SegmentBytes = 4 << 10
	s := mustOpen(t, breaking(&broken, func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpRemove && strings.Contains(op.Path, datadir.Log)
	}), cfg)
	defer s.Close()
	c := newCrashSeries(1)[0]
	for range 100 { // some segments, which the checkpoint leaves for reuse
		c.writeOnce(t.Context(), s, 10)
	}
	if err := s.checkpoint(); err != nil {
		t.Fatal(err)
	}
	c.writeOnce(t.Context(), s, 10)
	broken.Store(true)
	err := s.Compact(t.Context())
	if n := s.active.Load().Samples(); !errors.Is(err, errorfs.ErrInjected) || n != 10 {
		t.Errorf("%v; %d samples are in memory, want 10", err, n)
	}
	broken.Store(false)
	if err := s.Compact(t.Context()); err != nil || s.active.Load().Samples() != 0 {
		t.Errorf("%v; %d samples are in memory", err, s.active.Load().Samples())
	}
}
