package crashfs_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
)

// TestPowerCutBesideReuse cuts the power while files are reused, linked and locked. With
// MemFS itself this hangs within some hundred rounds.
func TestPowerCutBesideReuse(t *testing.T) {
	const rounds = 20000
	fs := crashfs.New()
	f, err := fs.Create("file0", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for range rounds {
				fs.CrashClone(vfs.CrashCloneCfg{})
			}
		})
	}
	for n := range rounds {
		if err := reuse(fs, n); err != nil {
			t.Fatal(err)
		}
	}
	group.Wait()
}

func reuse(fs *crashfs.FS, n int) error {
	name := fmt.Sprintf("file%d", n+1)
	f, err := fs.ReuseForWrite(fmt.Sprintf("file%d", n), name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fs.Link(name, "link"); err != nil {
		return err
	}
	if err := fs.Remove("link"); err != nil {
		return err
	}
	lock, err := fs.Lock("lock")
	if err != nil {
		return err
	}
	return lock.Close()
}
