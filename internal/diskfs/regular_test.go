//go:build unix

package diskfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// TestOnlyRegularFiles: FIFOs, sockets and devices are refused at once, also through a link.
func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(target string) string {
		name := filepath.Join(dir, "to-"+filepath.Base(target))
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, want := range map[string]string{
		file: "", link(file): "",
		fifo: "it is a FIFO", link(fifo): "it is a FIFO", link("/dev/zero"): "it is a device",
	} {
		calls := map[string]func() (vfs.File, error){
			"open":            func() (vfs.File, error) { return Data.Open(name) },
			"open to read":    func() (vfs.File, error) { return Reading.Open(name) },
			"open read-write": func() (vfs.File, error) { return Data.OpenReadWrite(name, vfs.WriteCategoryUnspecified) },
			"create":          func() (vfs.File, error) { return Data.Create(name, vfs.WriteCategoryUnspecified) },
		}
		for call, do := range calls {
			f, err := do()
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name)) {
				t.Errorf("%s %s: %v, want %q", call, name, err, want)
			}
			if err == nil {
				f.Close()
			}
		}
		lock, _, err := Reading.(reading).LockToRead(name)
		if (err == nil) != (want == "") {
			t.Errorf("lock %s: %v, want %q", name, err, want)
		}
		if err == nil {
			lock.Close()
		}
	}
	if f, err := Data.OpenDir(dir); err != nil || f.Close() != nil {
		t.Errorf("a directory: %v", err)
	}
}
