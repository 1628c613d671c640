package embedded

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
	"varve/internal/units"
)

// TestHeadBytesMax: what references in memory can hold bounds the setting.
func TestHeadBytesMax(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HeadBytes, cfg.HeadBytesMax = units.GiB, 2*units.GiB
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.HeadBytesMax++
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "head_bytes_max: want at least twice head_bytes, at most 2GiB, got 2147483649") {
		t.Errorf("one byte more: %v", err)
	}
}

// TestCatalogueFails: after a commit failed it is unknown what is on disk, so the
// files of the change stay. Neither checkpoints nor merges are tried after that,
// each of which would leave more; the store says that it has to be restarted, and
// nothing is lost.
func TestCatalogueFails(t *testing.T) {
	mem := vfs.NewMem()
	cfg := quietConfig("fsync")
	cfg.HeadBytes, cfg.HeadBytesMax = 16*units.MiB, 32*units.MiB
	s := mustOpen(t, mem, cfg)
	c := newCrashSeries(1)[0]
	c.writeOnce(context.Background(), s, 1000)
	s.must(t, s.checkpoint())
	c.writeOnce(context.Background(), s, 1000)

	// Pebble ends the process when the disk fails; other errors come back.
	s.must(t, s.catalogue.close())
	db, err := pebble.Open(s.path(catalogueName), &pebble.Options{FS: mem, ReadOnly: true, Logger: quietLog{}})
	s.must(t, err)
	s.catalogue.db = db

	if err := s.checkpoint(); !errors.Is(err, pebble.ErrReadOnly) {
		t.Fatalf("checkpoint: %v, want that the catalogue is read-only", err)
	}
	before := blockFiles(t, s, mem)
	if before != 2 {
		t.Errorf("%d block files, want the one that counts and the one in doubt", before)
	}
	for range 3 {
		if err := s.checkpoint(); !errors.Is(err, pebble.ErrReadOnly) {
			t.Errorf("another checkpoint: %v", err)
		}
		if err := s.Compact(context.Background()); !errors.Is(err, pebble.ErrReadOnly) {
			t.Errorf("compact: %v", err)
		}
		if err := s.maintain(context.Background()); !errors.Is(err, pebble.ErrReadOnly) {
			t.Errorf("maintenance: %v", err)
		}
	}
	if after := blockFiles(t, s, mem); after != before {
		t.Errorf("%d block files became %d", before, after)
	}
	var unavailable *store.UnavailableError
	if err := s.Healthy(); !errors.As(err, &unavailable) || unavailable.Reason != "the catalogue failed; the store takes no more writes until it is restarted" {
		t.Errorf("Healthy() = %v", err)
	}
	s.askCheckpoint() // its goroutine ends, and so does that of merges
	s.askMerge()
	if err := c.check(s); err != nil {
		t.Error(err)
	}
	s.must(t, s.Close())

	s = mustOpen(t, mem, cfg)
	defer s.Close()
	if err := c.check(s); err != nil {
		t.Error(err)
	}
	if n := blockFiles(t, s, mem); n != 1 {
		t.Errorf("%d block files after a restart, want the one that counts", n)
	}
}

func blockFiles(t *testing.T, s *Store, fs vfs.FS) int {
	t.Helper()
	names, err := fs.List(s.path(blocksName))
	s.must(t, err)
	return len(names)
}
