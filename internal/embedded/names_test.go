package embedded

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/wal"
)

// longNames are series whose names never repeat.
const (
	longNames     = 100
	longNameBytes = 60_000
)

func putLongNames(t *testing.T, s *Store) {
	t.Helper()
	var b store.Batch
	b.Reset(s.Epoch())
	for i := range longNames {
		ref, err := s.Create(context.Background(), model.Series{Metric: "long", Type: model.TypeLong, Tags: model.MustTags("id", fmt.Sprint(i, strings.Repeat("x", longNameBytes)))})
		s.must(t, err)
		b.AddLong(ref, crashOrigin, int64(i), 0)
	}
	if n := s.SeriesBytes(); n < 2*longNames*longNameBytes || n > 3*longNames*longNameBytes {
		t.Errorf("names of %d bytes count as %d before they are indexed", longNames*longNameBytes, n)
	}
	s.must(t, s.Append(context.Background(), &b))
}

// TestLongNames: names wait for a checkpoint in bounded memory, and their records of
// the log are small. They are there again after a crash, and when their series are
// deleted, their memory is free again.
func TestLongNames(t *testing.T) {
	mem := crashfs.New()
	cfg := quietConfig("fsync")
	cfg.HeadBytes, cfg.HeadBytesMax = 16<<20, 32<<20
	s := mustOpen(t, mem, cfg)
	putLongNames(t, s)
	if n := s.buffered(); n < longNames*longNameBytes {
		t.Errorf("%d bytes wait for a checkpoint, want those of the names too", n)
	}
	copied := mem.CrashClone(vfs.CrashCloneCfg{})
	s.must(t, s.Close())
	largest := 0
	if _, err := wal.Replay(copied, "data/"+datadir.Log, wal.ReplayOptions{}, func(_ wal.Segment, _ byte, payload []byte) error {
		largest = max(largest, len(payload))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if largest < longNameBytes || largest > 2<<20 {
		t.Errorf("the largest record of the log has %d bytes", largest)
	}

	cfg.HeadBytes, cfg.HeadBytesMax = 1<<20, 2<<20
	for _, disk := range []vfs.FS{copied, mem} { // from the log, from the catalogue
		s := mustOpen(t, disk, cfg)
		if n := s.SeriesCount(); n != longNames {
			t.Fatalf("%d series are left", n)
		}
		if n := s.SeriesBytes(); n < 2*longNames*longNameBytes || n > 3*longNames*longNameBytes {
			t.Errorf("names of %d bytes count as %d", longNames*longNameBytes, n)
		}
		for deadline := time.Now().Add(time.Minute); s.buffered() > 1<<20; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes wait for a checkpoint", s.buffered())
			}
		}
		s.must(t, s.Delete(context.Background(), store.Deletion{Metric: "long", Range: model.AllTime}))
		if n := s.SeriesBytes(); n > 64<<10 {
			t.Errorf("without series names count as %d bytes", n)
		}
		putLongNames(t, s)
		s.must(t, s.Close())
	}
}
