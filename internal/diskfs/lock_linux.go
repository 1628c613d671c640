package diskfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func lockToRead(name string) (io.Closer, bool, error) {
	if err := checkRegular("lock", name); err != nil {
		return nil, false, err
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return unlocked{}, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	// The lock of an open file, not of the process: where a server runs in this
	// very process it counts as held too.
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}
	switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		// Closing any file gives up what the process has locked of it (POSIX).
		// Should that be a server in this process, it must keep its lock.
		inUse = append(inUse, f)
		return nil, true, err
	case err != nil: // a file system without locks: nobody can hold one
		return f, false, nil
	}
	return f, false, nil
}

// inUse keeps files from being closed, see lockToRead. A command ends after one.
var inUse []*os.File
