//go:build unix

package safefile

import (
	"io/fs"
	"os"
	"syscall"
)

// chown gives f the user and group of another file. A group that has no rights there is left.
func chown(f *os.File, like fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	have, known := info.Sys().(*syscall.Stat_t)
	want, also := like.Sys().(*syscall.Stat_t)
	if !known || !also || have.Uid == want.Uid && (have.Gid == want.Gid || like.Mode().Perm()&0o070 == 0) {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}
