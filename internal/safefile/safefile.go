// Package safefile replaces small files atomically: a crash leaves either the old or the new
// one. It also reads and removes small files, copies files, lists directories, and makes the names
// in them durable.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Suffix is appended to the name of the temporary file of Replace. A crash may leave that file;
// it is useless, and the next Replace overwrites it.
const Suffix = ".new"

// Replace makes text the content of a file, which it creates if necessary. When it returns
// without an error, the file is durable.
func Replace(fsys vfs.FS, path string, text []byte) error {
	f, err := fsys.Create(path+Suffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(path+Suffix, path); err != nil {
		return err
	}
	return SyncDir(fsys, fsys.PathDir(path))
}

// Remove removes a file, durably. It is no error if there is none.
func Remove(fsys vfs.FS, path string) error {
	err := fsys.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, SyncDir(fsys, fsys.PathDir(path)))
}

// Read reads a file of at most most bytes.
func Read(fsys vfs.FS, path string, most int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return text, nil
}

// ReadRegular reads a regular file of at most most bytes. Anything else at path is an error: a FIFO
// or a pipe would wait for its writer for ever, and /dev/zero has no end.
func ReadRegular(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is not a regular file: it is a directory", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > most:
		return nil, fmt.Errorf("%s has %d bytes; want at most %d", path, info.Size(), most)
	}
	return os.ReadFile(path)
}

// List lists the names in a directory, none if it does not exist.
func List(fsys vfs.FS, dir string) ([]string, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// SyncDir makes the names in a directory durable.
func SyncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// Copy copies the content of a file to dst, which it overwrites, and syncs it. It does not sync
// the directory.
func Copy(fsys vfs.FS, src, dst string) error {
	from, err := fsys.Open(src, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("copy %s: %w", src, err)
	}
	defer from.Close()
	to, err := fsys.Create(dst, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", dst, err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return fmt.Errorf("copy %s to %s: %w", src, dst, err)
	}
	return nil
}
