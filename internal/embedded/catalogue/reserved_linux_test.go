package catalogue

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A catalogue uses no more of the disk than was written, even when its logs
// are used again.
func TestNothingIsReserved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "catalogue")
	for range 3 {
		c, err := Open(vfs.Default, dir, Options{Logger: Quiet{}, Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint64(4) {
			if err := c.Commit(Change{AddFiles: map[uint64]File{n: {Bytes: int64(n)}}}); err != nil {
				t.Fatal(err)
			}
			if err := c.db.Flush(); err != nil { // the next log
				t.Fatal(err)
			}
		}
		if taken := diskUse(t, dir); taken > 256<<10 {
			t.Errorf("a catalogue of four files takes %d bytes of the disk", taken)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// diskUse returns the bytes of the disk that the files of a directory take.
func diskUse(t *testing.T, dir string) (bytes int64) {
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) { // a compaction has removed it meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
