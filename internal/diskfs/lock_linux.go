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
	// The lock belongs to the open file, not to the process, so a lock that a
	// server in this process holds is noticed too.
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}
	switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		// Closing any descriptor of a file releases all POSIX locks of the
		// process on it. A server in this process must keep its lock.
		inUse = append(inUse, f)
		return nil, true, err
	case err != nil: // the file system has no locks, so nobody holds one
		return f, false, nil
	}
	return f, false, nil
}

// inUse keeps files open, see lockToRead. A command opens only one before it
// ends.
var inUse []*os.File
