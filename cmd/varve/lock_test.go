package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded"
)

// A lockless file system can lock nothing.
type lockless struct {
	vfs.FS
	create error // of the lock's file
	held   error
}

func (l lockless) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if l.create != nil {
		return nil, l.create
	}
	return l.FS.OpenReadWrite(name, c, o...)
}

func (l lockless) LockToRead(string) (io.Closer, bool, error) { return nil, true, l.held }

// A server over Cassandra starts in a directory in which no lock can be written, says so, and
// does not start in one that is in use.
func TestLockDataDir(t *testing.T) {
	written := func(errno error) error { return &fs.PathError{Op: "open", Path: "LOCK", Err: errno} }
	for _, tc := range []struct {
		name         string
		create, held error
		refused      string
	}{
		{"a full disk", written(syscall.ENOSPC), nil, ""},
		{"a directory of another user", written(syscall.EACCES), nil, ""},
		{"a directory that is read-only", written(syscall.EROFS), nil, ""},
		{"a broken disk", written(syscall.EIO), nil, "lock the data directory"},
		{"a lock that is held", nil, errors.New("resource temporarily unavailable"), "is in use by another process"},
	} {
		var log strings.Builder
		unlock, err := lockDataDir(lockless{vfs.NewMem(), tc.create, tc.held}, "data", slog.New(slog.NewTextHandler(&log, nil)))
		switch {
		case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
			t.Errorf("%s: %v, want one with %q", tc.name, err, tc.refused)
		case tc.refused == "" && (err != nil || unlock() != nil || !strings.Contains(log.String(), "cannot lock the data directory")):
			t.Errorf("%s: %v; log: %s", tc.name, err, &log)
		}
	}
}

// A start over Cassandra warns of points that an embedded store left in the data directory.
func TestTellOfEmbedded(t *testing.T) {
	fsys := vfs.NewMem()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if tellOfEmbedded(fsys, "data", logger); log.Len() > 0 {
		t.Errorf("of an empty directory: %s", &log)
	}
	s, err := embedded.Open(fsys, "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if tellOfEmbedded(fsys, "data", logger); !strings.Contains(log.String(), "holds an embedded store") {
		t.Errorf("of an embedded store: %q", &log)
	}
}

// A server whose data directory cannot be read says so once, and what to do.
func TestUnreadableDataDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code := run(terminal{stdout: &out, stderr: &out}, []string{"serve", "--data-dir=" + file, "--http-addr=127.0.0.1:0", "--telnet-addr=", "--carbon-addr=", "--pickle-addr="})
	said := out.String()
	if code != exitFault || !strings.HasPrefix(said, "varve: read the data directory: ") || !strings.HasSuffix(said, "(--data-dir)\n") || strings.Count(said, "\n") != 1 {
		t.Errorf("%d %s", code, said)
	}
}
