package safefile

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
)

func content(t *testing.T, fs vfs.FS, path string) string {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReplace: the file is the old or the new one, whichever call fails or is the last
// before a crash; the new one is there when Replace has returned.
func TestReplace(t *testing.T) {
	for n := int32(0); ; n++ {
		mem := crashfs.New()
		if err := Replace(mem, "file", []byte("old")); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int32
		failing := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			if calls.Add(1) == n+1 {
				return errorfs.ErrInjected
			}
			return nil
		}))
		err := Replace(failing, "file", []byte("new, and longer"))
		if err != nil && !errors.Is(err, errorfs.ErrInjected) {
			t.Fatal(err)
		}
		got := content(t, mem.CrashClone(vfs.CrashCloneCfg{}), "file")
		if got != "old" && got != "new, and longer" || err == nil && got == "old" {
			t.Errorf("call %d fails: %v, and the file is %q after a crash", n, err, got)
		}
		if err == nil {
			if n < 5 {
				t.Errorf("only %d calls could fail", n)
			}
			return
		}
	}
}

// TestCopy: whichever call fails, Copy says so; otherwise the copy has the whole content after a
// crash, and nothing of what it overwrote.
func TestCopy(t *testing.T) {
	for n := int32(0); ; n++ {
		mem := crashfs.New()
		for path, text := range map[string]string{"src": "content", "dst": "old, and longer"} {
			if err := Replace(mem, path, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		var calls atomic.Int32
		failing := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			if calls.Add(1) == n+1 {
				return errorfs.ErrInjected
			}
			return nil
		}))
		err := Copy(failing, "src", "dst")
		if err != nil {
			if !errors.Is(err, errorfs.ErrInjected) || !strings.HasPrefix(err.Error(), "copy ") {
				t.Errorf("call %d fails: %v", n, err)
			}
			continue
		}
		if calls.Load() == n+1 {
			continue // the source was not closed, which loses nothing
		}
		if calls.Load() > n {
			t.Errorf("call %d of %d fails, and no error is returned", n, calls.Load())
			continue
		}
		if err := SyncDir(mem, ""); err != nil {
			t.Fatal(err)
		}
		if got := content(t, mem.CrashClone(vfs.CrashCloneCfg{}), "dst"); got != "content" {
			t.Errorf("the copy is %q after a crash", got)
		}
		if n < 5 {
			t.Errorf("only %d calls could fail", n)
		}
		break
	}
	if err := Copy(crashfs.New(), "nosuch", "dst"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "copy nosuch: ") {
		t.Errorf("a missing file: %v", err)
	}
}

// TestRead: a file is read if it has at most as many bytes as allowed.
func TestRead(t *testing.T) {
	mem := crashfs.New()
	if err := Replace(mem, "file", []byte("12345")); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(mem, "file", 5); err != nil || string(text) != "12345" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := Read(mem, "file", 4); err == nil || text != nil || err.Error() != "file has more than 4 bytes" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Read(mem, "none", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestRemove: a removed file does not reappear after a crash, even if the directory could not be
// synced at first. It is no error if there is no file.
func TestRemove(t *testing.T) {
	mem := crashfs.New()
	if err := Replace(mem, "file", nil); err != nil {
		t.Fatal(err)
	}
	failing := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync {
			return errorfs.ErrInjected
		}
		return nil
	}))
	if err := Remove(failing, "file"); !errors.Is(err, errorfs.ErrInjected) {
		t.Error(err)
	}
	for range 2 {
		if err := Remove(mem, "file"); err != nil {
			t.Error(err)
		}
		if _, err := mem.CrashClone(vfs.CrashCloneCfg{}).Stat("file"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after a crash: %v", err)
		}
	}
}

// TestList: a directory that does not exist has no names, and other failures are errors.
func TestList(t *testing.T) {
	mem := crashfs.New()
	if err := Replace(mem, "dir", nil); err != nil {
		t.Fatal(err)
	}
	if names, err := List(mem, ""); err != nil || len(names) != 1 || names[0] != "dir" {
		t.Errorf("%v, %v", names, err)
	}
	if names, err := List(mem, "none"); err != nil || len(names) > 0 {
		t.Errorf("a missing directory: %v, %v", names, err)
	}
	if names, err := List(mem, "dir"); err == nil {
		t.Errorf("a file: %v", names)
	}
}
