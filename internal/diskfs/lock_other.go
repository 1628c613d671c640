//go:build !linux

package diskfs

import (
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lockToRead needs write permission on systems without locks of open files.
func lockToRead(name string) (io.Closer, bool, error) {
	if err := checkRegular("lock", name); err != nil {
		return nil, false, err
	}
	if _, err := vfs.Default.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return unlocked{}, false, nil
	}
	lock, err := vfs.Default.Lock(name)
	path := (*fs.PathError)(nil)
	if errors.As(err, &path) {
		return nil, false, err
	}
	return lock, err != nil, err
}
