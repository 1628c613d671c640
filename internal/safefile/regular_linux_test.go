package safefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is no small regular file is refused at once. A FIFO without a writer would be waited for.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := unix.Mkfifo(path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link to a FIFO": path("fifo"), "endless": "/dev/zero", "link": path("file")} {
		if err := os.Symlink(target, path(name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"file": "1234", "large": "12345"} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"fifo": "is not a regular file", "link to a FIFO": "is not a regular file", "endless": "is not a regular file",
		".": "is not a regular file: it is a directory", "large": "has 5 bytes; want at most 4", "nosuch": "no such file", "file": "", "link": "",
	} {
		text, err := ReadRegular(path(name), 4)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if want == "" && string(text) != "1234" {
			t.Errorf("%s: read %q", name, text)
		}
	}
}
