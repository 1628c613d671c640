package catalogue

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble is an open database of Pebble whose log records how far it was synced.
type Pebble struct {
	*pebble.DB
	fs     *fileSystem
	marked atomic.Pointer[syncMark] // the last mark in the log
}

// OpenPebble opens a Pebble database in dir in the same way as the catalogue: its log and list of
// tables are verified first, its markers survive a power cut, its version is pinned, and failures
// in the background come to an end. With fresh it is created if it does not exist. o has the other
// options.
func OpenPebble(fs vfs.FS, dir string, fresh bool, o *pebble.Options) (*Pebble, error) {
	if err := Verify(fs, dir); err != nil {
		return nil, err
	}
	files := &fileSystem{FS: fs, dir: dir, log: o.Logger} // a pointer, as Pebble compares it
	o.FS = files
	o.FormatMajorVersion = format
	o.Experimental.DisableIngestAsFlushable = func() bool { return true } // the log would name tables that no list has: see LiveTables
	o.DisableTableStats = fullDisk(fs, dir)
	o.EventListener = (&backgroundErrors{log: o.Logger}).listener()
	if err := createPebble(dir, o, fresh); err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, tableDamage(err, dir)
	}
	return &Pebble{DB: db, fs: files}, nil
}

// MarkSynced appends to the log a mark of how far it was synced, unless it already has that mark.
// It is called after a synced commit, whose damage would otherwise look like a write that a crash
// interrupted: Pebble would silently go back to the commit before.
//
// Each chunk of the log has such an offset from Pebble, too. But Pebble 2.1.7 counts only the part
// of a write that is in the last block, so after a batch of n blocks its offset stays n blocks
// behind; and it may wake goroutines that wait for a sync before it has the new
// offset.
func (db *Pebble) MarkSynced() error {
	synced := db.fs.synced.Load()
	if synced == nil || db.marked.Swap(synced) == synced {
		return nil
	}
	return db.LogData(synced.encode(), pebble.NoSync)
}

// roomToOpen is far more than an open writes: the replayed log, the list of tables, a new log.
const roomToOpen = 8 << 20

// fullDisk reports whether the disk may be too full for an open. If an open fails for lack
// of room, Pebble 2.1.7 closes its table cache while a goroutine that the replay of the log has
// started still reads table statistics through it, and the process panics. The store would open
// as soon as there is room. Without statistics, deleted ranges free their disk space later:
// after the next start at the latest.
func fullDisk(fs vfs.FS, dir string) bool {
	usage, err := fs.GetDiskUsage(dir)
	if err != nil { // a new directory, or a file system that cannot report its free space
		usage, err = fs.GetDiskUsage(fs.PathDir(dir))
	}
	return err == nil && usage.AvailBytes < roomToOpen
}

// CopyTo makes a copy in a directory that does not exist. Pebble panics with the error
// of a directory that it cannot sync, also when that is on another disk.
func (db *Pebble) CopyTo(dir string) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		var fault runtime.Error
		if failure, ok := p.(error); ok && !errors.As(failure, &fault) {
			err = failure
			return
		}
		panic(p)
	}()
	return db.Checkpoint(dir, pebble.WithFlushedWAL())
}
