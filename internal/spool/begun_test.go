package spool

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/safefile"
)

// TestMissingLog: a directory that was restored without its log says so, once; a new one, one of an
// earlier build and one whose log was removed in order do not.
func TestMissingLog(t *testing.T) {
	for what, tc := range map[string]struct {
		lose func(fs vfs.FS) error
		want bool
	}{
		"all there":           {func(vfs.FS) error { return nil }, false},
		"log missing":         {func(fs vfs.FS) error { return fs.RemoveAll("spool/log") }, true},
		"new":                 {func(fs vfs.FS) error { return fs.RemoveAll("spool") }, false},
		"of an earlier build": {func(fs vfs.FS) error { return fs.Remove("spool/" + begunName) }, false},
		"earlier, no log": {func(fs vfs.FS) error {
			if err := fs.Remove("spool/" + begunName); err != nil {
				return err
			}
			return fs.RemoveAll("spool/log")
		}, false},
		"removed in order": {func(fs vfs.FS) error {
			if err := safefile.Remove(fs, "spool/"+begunName); err != nil {
				return err
			}
			return fs.RemoveAll("spool/log")
		}, false},
	} {
		disk := vfs.NewMem()
		var logged bytes.Buffer
		start := func() {
			logged.Reset()
			s := mustOpen(t, disk, tinyConfig(), Options{Sink: &drop{}, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		tells := func() bool { return strings.Contains(logged.String(), "log of the spool is missing") }
		start()
		if tells() {
			t.Errorf("%s: the first start says that the log is missing", what)
		}
		if err := tc.lose(disk); err != nil {
			t.Fatal(err)
		}
		start()
		if tells() != tc.want {
			t.Errorf("%s: said that the log is missing: %t, want %t\n%s", what, tells(), tc.want, &logged)
		}
		start()
		if tells() {
			t.Errorf("%s: the start after that says it again", what)
		}
	}
}

// TestMissingLogIsNotGuessed: if it cannot be determined whether the log was begun, the spool
// does not open.
func TestMissingLogIsNotGuessed(t *testing.T) {
	for n := int64(1); ; n++ {
		disk := vfs.NewMem()
		if err := mustOpen(t, disk, tinyConfig(), Options{Sink: &drop{}}).Close(); err != nil {
			t.Fatal(err)
		}
		if err := disk.RemoveAll("spool/log"); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int64
		s, err := Open(errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpStat && strings.HasSuffix(op.Path, begunName) && calls.Add(1) == n {
				return errorfs.ErrInjected
			}
			return nil
		})), "spool", tinyConfig(), quickRetries(Options{Sink: &drop{}}))
		if calls.Load() < n {
			if err != nil || n < 2 {
				t.Fatalf("without a failure: %v, after %d looks", err, n-1)
			}
			_ = s.Close()
			return
		}
		if !errors.Is(err, errorfs.ErrInjected) || !strings.Contains(err.Error(), "find out whether the log of the spool was begun") {
			t.Errorf("look %d fails, and Open says: %v", n, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestNoLogOnAFullDisk: a spool that could not begin its log for lack of space does not tell later
// that the log is missing. An empty file often still has room where a segment has none.
func TestNoLogOnAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	full := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate {
			return errNoSpace
		}
		return nil
	}))
	var logged bytes.Buffer
	for _, fs := range []vfs.FS{full, disk} {
		s := mustOpen(t, fs, tinyConfig(), Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(logged.String(), "log of the spool is missing") {
		t.Errorf("logged:\n%s", &logged)
	}
}
