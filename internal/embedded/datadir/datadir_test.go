package datadir

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs"
)

func TestBlockNames(t *testing.T) {
	for _, n := range []uint64{0, 1, 8, 10, 9_999_999_999, 10_000_000_000, math.MaxUint64} {
		if got, ok := BlockNumber(BlockName(n)); got != n || !ok {
			t.Errorf("%s is said to be %d, %v", BlockName(n), got, ok)
		}
	}
	for _, name := range []string{"", ".blk", "1", "0000000001", "x.blk", "-1.blk", "+1.blk", "18446744073709551616.blk", "0000000001.blk.tmp"} {
		if n, ok := BlockNumber(name); ok {
			t.Errorf("%q is said to be block file %d", name, n)
		}
	}
}

// TestLocks: one process can open a directory for writing, others get an error; a directory that
// cannot be used is reported as such. Reading creates no lock file.
func TestLocks(t *testing.T) {
	for name, to := range map[string]struct {
		disk vfs.FS
		dir  string
	}{
		"memory": {vfs.NewMem(), "data"}, "disk": {vfs.Default, t.TempDir()}, "disk, to read": {diskfs.Reading, t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			if err := to.disk.MkdirAll(to.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			lock, err := LockToRead(to.disk, to.dir)
			if err != nil || lock.Close() != nil {
				t.Fatalf("of a directory without a lock file: %v", err)
			}
			if _, err := to.disk.Stat(filepath.Join(to.dir, LockFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a lock file was made: %v", err)
			}
			lock, err = Lock(to.disk, to.dir)
			if err != nil {
				t.Fatal(err)
			}
			for what, take := range map[string]func() error{
				"to write": func() error { _, err := Lock(to.disk, to.dir); return err },
				"to read":  func() error { _, err := LockToRead(to.disk, to.dir); return err },
			} {
				var locked *LockedError
				if err := take(); !errors.As(err, &locked) || locked.Dir != to.dir || locked.Err == nil || !errors.Is(err, locked.Err) || !strings.Contains(err.Error(), to.dir) {
					t.Errorf("%s, while it is held: %v", what, err)
				}
			}
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
			lock, err = LockToRead(to.disk, to.dir)
			if err != nil || lock.Close() != nil {
				t.Errorf("after it was given back: %v", err)
			}
		})
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if lock, err := Lock(vfs.Default, missing); lock != nil || !errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*LockedError)) || !strings.Contains(err.Error(), missing) {
		t.Errorf("of a directory that is not there: %v, %v", lock, err)
	}
}
