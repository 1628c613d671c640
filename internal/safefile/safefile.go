// Package safefile replaces small files so that a crash leaves the old or the new one.
package safefile

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Suffix is that of a file that a crash may leave beside the one that was to be
// replaced. It is of no use, and written over by the next Replace.
const Suffix = ".new"

// Replace makes text the content of a file, which need not be there. When it returns
// without an error the file is on the disk.
func Replace(fs vfs.FS, path string, text []byte) error {
	f, err := fs.Create(path+Suffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(path+Suffix, path); err != nil {
		return err
	}
	return SyncDir(fs, fs.PathDir(path))
}

// SyncDir puts the names in a directory on the disk.
func SyncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
