package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// CreateOwned creates a file that must not exist; flags are added to those of os.OpenFile. As root
// it gives the file to the owner of the directory: root may run commands beside a server that runs
// as another user and must be able to open the file. The file is created exclusively and its owner
// is changed by its handle, so a link in a directory of that user cannot redirect either.
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

// Adopt gives a file the owner and the permissions of the file that it will replace.
func Adopt(f *os.File, old fs.FileInfo) error {
	if err := chown(f, old); err != nil {
		return err
	}
	return f.Chmod(old.Mode().Perm())
}
