package catalogue

import (
	"strings"
	"sync/atomic"

	"varve/internal/safefile"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// fileSystem is the file system as Pebble sees it, with three changes.
//
// Pebble names its current list of tables by an empty file, a marker. It writes a new
// list, creates the new marker, removes the old one, and syncs the directory once, at the
// end. On a file system that reorders changes to a directory, a power cut could lose the
// list and keep its marker, or lose both markers. So the directory is synced before each
// of these steps; a marker moves only at a start and once in many MiB.
//
// If the catalogue's directory cannot be synced, Pebble panics. Here that is the same
// fatal error as any other failed write. Other directories, for example of a backup, may
// be on other disks: their failure is the error of that operation.
//
// Pebble reserves space for each log, 1.1 MB here, and keeps two old logs for reuse. All
// series of a small store take less. So no space is reserved. The log is synced only a few
// times a minute, so syncing its length too costs little.
//
// It also records how far the current log is durable: see [Pebble.MarkSynced].
type fileSystem struct {
	vfs.FS
	dir    string // of the catalogue
	log    pebble.Logger
	synced atomic.Pointer[syncMark] // the last one, nil before the first
}

func (fs *fileSystem) isMarker(name string) bool {
	return strings.HasPrefix(fs.PathBase(name), "marker.")
}

// Create implements [vfs.FS].
func (fs *fileSystem) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if fs.isMarker(name) {
		if err := safefile.SyncDir(fs.FS, fs.PathDir(name)); err != nil {
			return nil, err
		}
	}
	f, err := fs.FS.Create(name, category)
	return fs.logFile(f, name), err
}

// ReuseForWrite implements [vfs.FS].
func (fs *fileSystem) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(from, to, category)
	return fs.logFile(f, to), err
}

// logFile wraps a log of the database. It leaves other files alone, such as the copy of a log for a
// backup, which has the same name in another directory: a sync of the copy does not make the log
// durable.
func (fs *fileSystem) logFile(f vfs.File, name string) vfs.File {
	base := fs.PathBase(name)
	number := numberIn(base, "", ".log")
	if f == nil || number == 0 || name != fs.PathJoin(fs.dir, base) {
		return f
	}
	return &logFile{File: f, fs: fs, number: uint32(number)}
}

// logFile is a log of Pebble, which writes it from its beginning, by one goroutine at a time. No
// space is reserved for it.
type logFile struct {
	vfs.File
	fs      *fileSystem
	number  uint32
	written uint64
}

// Preallocate implements [vfs.File].
func (*logFile) Preallocate(int64, int64) error { return nil }

// Write implements [vfs.File].
func (f *logFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.written += uint64(n)
	return n, err
}

// Sync implements [vfs.File].
func (f *logFile) Sync() error { return f.note(f.File.Sync()) }

// SyncData implements [vfs.File].
func (f *logFile) SyncData() error { return f.note(f.File.SyncData()) }

// note notes what a sync has made durable.
func (f *logFile) note(err error) error {
	if err == nil {
		f.fs.synced.Store(&syncMark{f.number, f.written})
	}
	return err
}

// Remove implements [vfs.FS].
func (fs *fileSystem) Remove(name string) error {
	if fs.isMarker(name) {
		if err := safefile.SyncDir(fs.FS, fs.PathDir(name)); err != nil {
			return err
		}
	}
	return fs.FS.Remove(name)
}

// OpenDir implements [vfs.FS].
func (fs *fileSystem) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil || name != fs.dir {
		return f, err
	}
	return directory{f, name, fs.log}, nil
}

// Unwrap implements [vfs.FS].
func (fs *fileSystem) Unwrap() vfs.FS { return fs.FS }

type directory struct {
	vfs.File
	name string
	log  pebble.Logger
}

// Sync implements [vfs.File].
func (d directory) Sync() error {
	err := d.File.Sync()
	if err != nil {
		d.log.Fatalf("sync directory %s: %v", d.name, err)
	}
	return err
}
