//go:build unix

package doctor

import (
	"io/fs"
	"syscall"
)

const worldMatters = true // the permission bits of a file decide who may read it

func ownerOf(info fs.FileInfo) (uid int, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

// mayUse returns an error if this user may not read path or, where that is asked for, write to it.
func mayUse(path string, write bool) error {
	const read, readAndWrite = 4, 4 | 2
	mode := uint32(read)
	if write {
		mode = readAndWrite
	}
	if err := syscall.Access(path, mode); err != nil {
		return &fs.PathError{Op: "access", Path: path, Err: err}
	}
	return nil
}
