package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// CreateOwned creates a file that must not be there, with flags of os.OpenFile beside. As root it
// gives the file to the owner of its directory: root runs commands beside a server that is
// another user, and that must be able to open the file. The file is created by its own name and
// given away by its handle, so no link in a directory of that user leads it elsewhere.
func CreateOwned(path string, flags int, perm fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, perm)
	if err != nil || os.Geteuid() != 0 {
		return f, err
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err == nil {
		err = chown(f, dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
}

// Adopt gives a file, which is to replace another one, the owner and the permissions of that.
func Adopt(f *os.File, old fs.FileInfo) error {
	if err := chown(f, old); err != nil {
		return err
	}
	return f.Chmod(old.Mode().Perm())
}
