// Package datadir knows the layout of an embedded store's data directory: the names in
// it, and the lock.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The names in a data directory.
const (
	LockFile  = "LOCK"
	Catalogue = "catalogue"
	Log       = "log"
	Blocks    = "blocks"
	Backups   = "backups"
	Timelines = "timelines"
	Tenants   = "tenants" // the data directories of tenants, and in a directory of backups their backups

	// Quarantine is where a repair puts what is damaged, and a text beside each
	// file that says why.
	Quarantine = "quarantine"

	blockSuffix = ".blk"
)

// OwnerAdvice says what to do if this user may not use a file in a data directory, for example because
// root has run a command there.
func OwnerAdvice(dir string) string {
	return fmt.Sprintf("all files in %s must belong to the user of the server: run each command as this user; chown -R gives the files to it", dir)
}

// ReadOnlyAdvice says what to do if the file system of a data directory accepts no writes.
func ReadOnlyAdvice(dir string) string {
	return fmt.Sprintf("mount the file system of %s for writing; if it was, see the kernel log: a disk error makes a file system read-only", dir)
}

// A LockedError means that another process has the directory open.
type LockedError struct {
	Dir string
	Err error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("data directory %s is in use by another process (%v): stop that one, or give this one a directory of its own", e.Dir, e.Err)
}

func (e *LockedError) Unwrap() error { return e.Err }

// Lock takes the lock of a data directory for writing.
func Lock(disk vfs.FS, dir string) (io.Closer, error) {
	lock, err := disk.Lock(disk.PathJoin(dir, LockFile))
	if err != nil {
		return nil, lockError(dir, err, !errors.As(err, new(*fs.PathError)))
	}
	return lock, nil
}

// LockToRead takes the lock of a data directory for reading, if the file system
// knows how to do that without writing. A directory without a lock file is not in
// use.
func LockToRead(disk vfs.FS, dir string) (io.Closer, error) {
	name := disk.PathJoin(dir, LockFile)
	if r, ok := disk.(interface {
		LockToRead(name string) (lock io.Closer, held bool, err error)
	}); ok {
		lock, held, err := r.LockToRead(name)
		if err != nil {
			return nil, lockError(dir, err, held)
		}
		return lock, nil
	}
	if _, err := disk.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	return Lock(disk, dir)
}

// lockError distinguishes a lock that is held from a file that cannot be used.
func lockError(dir string, err error, held bool) error {
	if held {
		return &LockedError{Dir: dir, Err: err}
	}
	return fmt.Errorf("find out whether data directory %s is in use: %w", dir, err)
}

// BlockName is the name of the block file with a number, in the directory of block files.
func BlockName(number uint64) string { return fmt.Sprintf("%010d%s", number, blockSuffix) }

// BlockPath is the path of the block file with a number in the data directory
// dir.
func BlockPath(disk vfs.FS, dir string, number uint64) string {
	return disk.PathJoin(dir, Blocks, BlockName(number))
}

// BlockNumber is the inverse of BlockName.
func BlockNumber(name string) (uint64, bool) {
	base, ok := strings.CutSuffix(name, blockSuffix)
	n, err := strconv.ParseUint(base, 10, 64)
	return n, ok && err == nil
}
