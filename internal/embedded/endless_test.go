//go:build unix

package embedded

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"varve/internal/diskfs"
	"varve/internal/embedded/offline"
	"varve/internal/store"
)

// storeFiles are patterns of the files of a store that are read at a start or by a check.
var storeFiles = []string{"log/*.wal", "blocks/*", "catalogue/*.log", "catalogue/OPTIONS-*", "catalogue/MANIFEST-*"}

// storeOnDisk returns a directory with a store that has some samples in files, and some in the log.
func storeOnDisk(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "data")
	s, _ := sampleStore(t, diskfs.Data, dir, 50)
	if err := s.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// spoil calls do for one file after the other of a store of its own, and then open.
func spoil(t *testing.T, do func(path string) error, want func(t *testing.T, dir string, err error)) {
	for _, pattern := range storeFiles {
		t.Run(pattern, func(t *testing.T) {
			dir := storeOnDisk(t)
			names, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(names) == 0 {
				t.Fatalf("%d files, %v", len(names), err)
			}
			if err := do(names[len(names)-1]); err != nil {
				t.Fatal(err)
			}
			s, err := Open(diskfs.Data, dir, quietConfig("fsync"), Options{})
			if err == nil {
				s.Close()
			}
			want(t, dir, err)
		})
	}
}

// TestEndlessFiles: a file that is longer than any is refused before it is read, also by a check.
func TestEndlessFiles(t *testing.T) {
	spoil(t, func(path string) error { return os.Truncate(path, 1<<42) }, func(t *testing.T, dir string, err error) {
		var damage *store.CorruptionError
		if !errors.As(err, &damage) {
			t.Errorf("open: %v, want damage", err)
		}
		d, err := offline.Open(diskfs.Reading, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if r, err := d.Check(context.Background(), offline.CheckOptions{}); err != nil || r.Clean() {
			t.Errorf("check: %v, want a finding", err)
		}
	})
}

// TestNoRegularFiles: a FIFO or a device in place of a file is refused, not waited for.
func TestNoRegularFiles(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"it is a FIFO":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"it is a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		spoil(t, func(path string) error { return errors.Join(os.Remove(path), put(path)) }, func(t *testing.T, dir string, err error) {
			var kind *fs.PathError
			if !errors.As(err, &kind) || !strings.Contains(err.Error(), what) {
				t.Errorf("open: %v, want %q", err, what)
			}
			d, err := offline.Open(diskfs.Reading, dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if r, err := d.Check(context.Background(), offline.CheckOptions{}); err == nil && r.Clean() {
				t.Error("check finds nothing")
			}
		})
	}
}
