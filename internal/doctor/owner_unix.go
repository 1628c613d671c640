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
