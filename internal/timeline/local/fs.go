package local

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/wal"
)

// fileSystem is the file system of the database. When Pebble cannot complete a log or begin the next
// one, it panics with a mutex released, which ends the process without a message. Here that becomes
// the same fatal error as any other failure to write. There are two exceptions. If the first log
// cannot be begun, the start fails. If a full disk has no space for a log, that commit and all later
// ones fail until the database is closed and opened again; it is fatal only if Pebble begins another
// log before that.
type fileSystem struct {
	vfs.FS
	begun   atomic.Bool // a log was created
	closing atomic.Bool // the database is being closed
	fatal   func(reason string)
	full    func(error)
}

// Create implements [vfs.FS].
func (fs *fileSystem) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.log(name, f, err)
}

// ReuseForWrite implements [vfs.FS].
func (fs *fileSystem) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(old, name, category)
	return fs.log(name, f, err)
}

func (fs *fileSystem) log(name string, f vfs.File, err error) (vfs.File, error) {
	if !strings.HasSuffix(name, ".log") {
		return f, err
	}
	if err != nil {
		if fs.begun.Load() { // even on a full disk
			fs.fatal(fmt.Sprintf("begin a log: %v", err))
		}
		return nil, err
	}
	fs.begun.Store(true)
	return &logFile{File: f, fs: fs}, nil
}

// Unwrap implements [vfs.FS].
func (fs *fileSystem) Unwrap() vfs.FS { return fs.FS }

// logFile is a log that reports failures to write.
type logFile struct {
	vfs.File
	fs   *fileSystem
	full atomic.Bool // the disk had no space for it
}

func (f *logFile) check(doing string, err error) error {
	switch {
	case wal.NoSpace(err):
		f.full.Store(true)
		f.fs.full(err)
	case err != nil:
		f.fs.fatal(fmt.Sprintf("%s the log: %v", doing, err))
	}
	return err
}

// Write implements [vfs.File].
func (f *logFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.check("write", err)
}

// Sync implements [vfs.File].
func (f *logFile) Sync() error { return f.check("sync", f.File.Sync()) }

// SyncData implements [vfs.File].
func (f *logFile) SyncData() error { return f.check("sync", f.File.SyncData()) }

// SyncTo implements [vfs.File].
func (f *logFile) SyncTo(length int64) (full bool, err error) {
	full, err = f.File.SyncTo(length)
	return full, f.check("sync", err)
}

// Close implements [vfs.File].
func (f *logFile) Close() error {
	if f.full.Load() && !f.fs.closing.Load() {
		f.fs.fatal("finish writing the log: the disk is full")
	}
	return f.File.Close()
}
