// Package crashfs is a file system in memory for tests that cut the power while a store
// writes: [vfs.MemFS] without its deadlocks.
//
// MemFS guards CrashClone with a read-write lock, and its Link, Lock and ReuseForWrite take
// the read side twice. If a CrashClone begins to wait between the two, neither can continue.
package crashfs

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a file system in memory that knows what has been synced.
type FS struct {
	*vfs.MemFS
	uncut sync.Mutex // held by CrashClone, and by the calls that it must not interrupt
}

// New returns an empty file system.
func New() *FS { return &FS{MemFS: vfs.NewCrashableMem()} }

// CrashClone returns what may be on disk after a power cut at this moment. It may be called
// beside all other methods.
func (f *FS) CrashClone(cfg vfs.CrashCloneCfg) *FS {
	f.uncut.Lock()
	defer f.uncut.Unlock()
	return &FS{MemFS: f.MemFS.CrashClone(cfg)}
}

// Link implements [vfs.FS].
func (f *FS) Link(old, name string) error {
	f.uncut.Lock()
	defer f.uncut.Unlock()
	return f.MemFS.Link(old, name)
}

// ReuseForWrite implements [vfs.FS].
func (f *FS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.uncut.Lock()
	defer f.uncut.Unlock()
	return f.MemFS.ReuseForWrite(old, name, category)
}

// Lock implements [vfs.FS].
func (f *FS) Lock(name string) (io.Closer, error) {
	f.uncut.Lock()
	defer f.uncut.Unlock()
	return f.MemFS.Lock(name)
}
