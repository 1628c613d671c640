//go:build unix

package safefile

import (
	"io/fs"
	"os"
	"syscall"
)

// chown gives f the owner and group of another file. If only the group differs, and it has no
// rights on the other file, nothing is changed.
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
