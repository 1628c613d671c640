package process

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Clock is the wall clock of servers that its Start starts. Monotonic time remains
// that of the machine. The clock is a file that the processes map, so that a change
// takes effect at once.
type Clock struct{ path string }

// NewClock returns a clock that agrees with the machine's.
func NewClock(t *testing.T) *Clock {
	t.Helper()
	c := &Clock{path: filepath.Join(t.TempDir(), "clock")}
	if err := os.WriteFile(c.path, make([]byte, 8), 0o644); err != nil {
		t.Fatal(err)
	}
	return c
}

// Set sets how far the clock is ahead of the machine's.
func (c *Clock) Set(t *testing.T, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(c.path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead)), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Start is like the function Start, with a varve that has this clock.
func (c *Clock) Start(t *testing.T, dir string, flags ...string) *Server {
	t.Helper()
	path, err := clocked()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, program{path, []string{"CLOCK_AHEAD=" + c.path}}, dir, flags)
}

//go:embed clock/time.go.txt
var timeOverlay string

//go:embed clock/main.go.txt
var mainOverlay string

// clocked builds varve with a time.Now that a file sets, once, and returns its path.
// The released program cannot do this: for this build, an overlay replaces files of
// the standard library and of the command, so that all code of varve uses the clock.
var clocked = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(built, "clocked")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	overlay, err := layOver(dir)
	if err != nil {
		return "", fmt.Errorf("build varve with a clock that is set: %w", err)
	}
	binary := filepath.Join(dir, "varve")
	build := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "varve/cmd/varve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build varve with a clock that is set: %w\n%s", err, out)
	}
	return binary, nil
})

// layOver writes the overlay's files into dir, and returns the list of them for go
// build.
func layOver(dir string) (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "time", "varve/cmd/varve").Output()
	if err != nil {
		return "", err
	}
	std, command, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	text, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	const read = "\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), read) != 1 {
		return "", fmt.Errorf("%s: time.Now is not as it was in Go 1.26: %q is not there once", std, read)
	}
	replaced := map[string]string{}
	for path, text := range map[string]string{
		filepath.Join(std, "time.go"):              strings.Replace(string(text), read, read+"\tsec, nsec = setAhead(sec, nsec)\n", 1),
		filepath.Join(std, "ahead_overlay.go"):     timeOverlay,
		filepath.Join(command, "ahead_overlay.go"): mainOverlay,
	} {
		replaced[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replaced)))
		if err := os.WriteFile(replaced[path], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o644)
}
