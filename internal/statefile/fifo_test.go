//go:build unix

package statefile

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A FIFO is refused at once: to open it would wait for a process at its other end.
func TestFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.state")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "is not a regular file"
	var s state
	if found, err := Read(path, &s); found || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("state: %v, %v; want %q", found, err, want)
	}
	r := Report{Path: path}
	if err := r.Add("x"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("report: %v; want %q", err, want)
	}
}
