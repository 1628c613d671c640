package safefile

import (
	"errors"
	"io"
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
