// Package diskfs is the file system of the machine for data directories, and for commands that
// only read them.
package diskfs

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Reading is the machine's file system with a way to hold a lock file that needs
// no right to write.
var Reading vfs.FS = reading{Data}

type reading struct{ vfs.FS }

// Unwrap implements [vfs.FS].
func (r reading) Unwrap() vfs.FS { return r.FS }

// LockToRead takes the lock file at name together with others that only read, and
// without writing or creating it. held reports that somebody has it for writing.
// A file that is not there is no lock that somebody holds.
func (r reading) LockToRead(name string) (lock io.Closer, held bool, err error) {
	return lockToRead(name)
}

type unlocked struct{}

func (unlocked) Close() error { return nil }
