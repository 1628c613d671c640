package embedded

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded/offline"
	"varve/internal/store"
)

// withoutLog returns copies of a data directory as a restore that was cut off may leave
// them: the log is not there, or its segments are empty, cut off or zeros.
func withoutLog(img image) map[string]image {
	spoilt := make(map[string]image)
	for name, spoil := range map[string]func(b []byte) []byte{
		"missing": func([]byte) []byte { return nil },
		"empty":   func([]byte) []byte { return []byte{} },
		"cut off": func(b []byte) []byte { return b[:20] },
		"zeros":   func(b []byte) []byte { return make([]byte, len(b)) },
	} {
		one := maps.Clone(img)
		for _, p := range slices.Sorted(maps.Keys(img)) {
			if !strings.HasSuffix(p, ".wal") {
				continue
			}
			if b := spoil(img[p]); b != nil {
				one[p] = b
			} else {
				delete(one, p)
			}
		}
		spoilt[name] = one
	}
	return spoilt
}

// TestMissingLog: a store whose log is gone is damaged, however little of it the log had:
// without its checkpoint, after one, and after a start. It is not one without newer samples.
func TestMissingLog(t *testing.T) {
	disk := vfs.NewMem()
	s, err := Open(disk, "data", DefaultConfig(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]image{"new": readImage(t, disk, "data")}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	images["closed"] = readImage(t, disk, "data")
	disk = vfs.NewMem()
	s, _ = sampleStore(t, disk, "data", 50)
	images["running"] = readImage(t, disk, "data")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	images["after checkpoint"] = readImage(t, disk, "data")
	for when, img := range images {
		for how, spoilt := range withoutLog(img) {
			disk := spoilt.load(t)
			if when == "new" && how == "missing" {
				if err := disk.RemoveAll("data/log"); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
			var damage *store.CorruptionError
			if s, err := Open(disk, "data", DefaultConfig(), Options{}); !errors.As(err, &damage) || path.Dir(damage.File) != "data/log" {
				t.Errorf("%s, %s: opened %v, %v, want damage of the log", when, how, s != nil, err)
				if s != nil {
					s.Close()
				}
			}
			if r := checkOf(t, disk, "data"); len(r.Findings) != 1 || path.Dir(r.Findings[0].File) != "data/log" {
				t.Errorf("%s, %s: check found %+v, want one finding about the log", when, how, r.Findings)
			} else if f := r.Findings[0]; (f.Offset < 0) != strings.HasPrefix(f.Remedy, "put the file back") {
				t.Errorf("%s, %s: the remedy for damage at %d is to %s", when, how, f.Offset, f.Remedy)
			}
			if r, err := Repair(context.Background(), disk, "data", offline.RepairOptions{}); err != nil || !r.Clean() {
				t.Errorf("%s, %s: repair: %v, %+v", when, how, err, r)
			}
			content(t, disk, "data")
		}
	}
}

// TestBackupWithoutLog: the backup of a store of which all is in block files has a log too.
func TestBackupWithoutLog(t *testing.T) {
	disk := vfs.NewMem()
	s, _ := sampleStore(t, disk, "data", 50)
	before, err := storeContent(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} { // nothing is written between them
		if _, err := s.Backup(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"data/backups/one", "data/backups/two"} {
		if r := checkOf(t, disk, dir); !r.Clean() || len(r.Notes) > 0 {
			t.Errorf("%s: %+v", dir, r)
		}
		if got := content(t, disk, dir); got != before {
			t.Errorf("%s: has %d bytes of content, want %d", dir, len(got), len(before))
		}
	}
}
