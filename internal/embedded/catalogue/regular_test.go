//go:build unix

package catalogue

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"varve/internal/diskfs"
)

// TestVerifyNoRegularFiles: something other than a file, in place of one without which Pebble does not
// open the database, is found and named.
func TestVerifyNoRegularFiles(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"a FIFO":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		},
	} {
		for _, pattern := range []string{"*.log", "LOCK", "MANIFEST-*", "OPTIONS-*"} {
			// The path of a socket has at most a hundred bytes.
			dir, err := os.MkdirTemp("", "varve")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			c, err := Open(diskfs.Data, dir, Options{Logger: Quiet{}, Fresh: true})
			if err == nil {
				err = errors.Join(c.Commit(Change{AddFiles: map[uint64]File{1: {}}}), c.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			names, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(names) == 0 {
				t.Fatalf("%s: %q, %v", pattern, names, err)
			}
			path := names[len(names)-1]
			if err := errors.Join(os.Remove(path), put(path)); err != nil {
				t.Fatal(err)
			}
			fault := Verify(diskfs.Data, dir)
			c, err = Open(diskfs.Data, dir, Options{Logger: Quiet{}})
			if err == nil {
				c.Close()
				t.Errorf("%s is %s: it was opened", pattern, what)
			}
			if fault == nil || !strings.Contains(fault.Error(), path) || !strings.Contains(fault.Error(), what) {
				t.Errorf("%s is %s: Verify returns %v; want the path, and %s", pattern, what, fault, what)
			}
		}
	}
}
