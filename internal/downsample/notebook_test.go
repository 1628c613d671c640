package downsample

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestFailingNotebook: whichever call fails while notes of late points are opened or read, that
// is an error: with notes that were taken for empty, buckets would not be computed again.
func TestFailingNotebook(t *testing.T) {
	open := func(fs vfs.FS) (pages []page, err error) {
		b, err := openNotebook(fs, fs.PathJoin("data", "notes"), "task")
		if err != nil {
			return nil, err
		}
		return b.pages()
	}
	for n := int32(1); ; n++ {
		mem := vfs.NewMem()
		if err := mem.MkdirAll("data", 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := openNotebook(mem, mem.PathJoin("data", "notes"), "task")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.write(page{ID: "task"}); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int32
		var failed errorfs.Op
		pages, err := open(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if calls.Add(1) != n {
				return nil
			}
			failed = op
			return errorfs.ErrInjected
		})))
		if calls.Load() < n {
			if err != nil || len(pages) != 1 || pages[0].ID != "task" || n < 8 {
				t.Errorf("after %d calls: %+v, %v", n-1, pages, err)
			}
			return
		}
		if !errors.Is(err, errorfs.ErrInjected) && failed.Kind != errorfs.OpFileClose { // of a file that was only read
			t.Errorf("call %d, %v, fails: %+v, %v", n, failed.Kind, pages, err)
		}
	}
}
