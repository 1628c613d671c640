package diskfs

import (
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Data is the machine's file system for data directories. It opens no FIFOs, sockets and devices:
// an open of a FIFO waits for a writer forever, and /dev/zero has no end.
var Data vfs.FS = regular{vfs.Default}

type regular struct{ vfs.FS }

// Unwrap implements [vfs.FS].
func (r regular) Unwrap() vfs.FS { return r.FS }

// Open implements [vfs.FS].
func (r regular) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if err := checkRegular("open", name); err != nil {
		return nil, err
	}
	return r.FS.Open(name, options...)
}

// OpenReadWrite implements [vfs.FS].
func (r regular) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	if err := checkRegular("open", name); err != nil {
		return nil, err
	}
	return r.FS.OpenReadWrite(name, category, options...)
}

// Create implements [vfs.FS].
func (r regular) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := checkRegular("create", name); err != nil {
		return nil, err
	}
	return r.FS.Create(name, category)
}

// A kindError says that a file is neither a regular file nor a directory.
type kindError struct{ kind string }

func (e kindError) Error() string {
	return "it is " + e.kind + ", want a regular file: remove it, or put the file of a backup in its place"
}

// checkRegular returns an error if name is neither a regular file nor a directory. If the kind is
// unknown, it returns nil, and leaves the error to the operation.
func checkRegular(operation, name string) error {
	info, err := vfs.Default.Stat(name)
	if err != nil {
		return nil
	}
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.IsDir():
		return nil
	case mode&fs.ModeNamedPipe != 0:
		return &fs.PathError{Op: operation, Path: name, Err: kindError{"a FIFO"}}
	case mode&fs.ModeSocket != 0:
		return &fs.PathError{Op: operation, Path: name, Err: kindError{"a socket"}}
	case mode&fs.ModeDevice != 0:
		return &fs.PathError{Op: operation, Path: name, Err: kindError{"a device"}}
	}
	return &fs.PathError{Op: operation, Path: name, Err: kindError{"something else"}}
}
