package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/clip"
	"varve/internal/embedded/datadir"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/wal"
)

// A BackupReport says what a backup holds.
type BackupReport struct {
	Dir       string `json:"dir"`
	Files     int    `json:"files"`
	FileBytes int64  `json:"file_bytes"`
	Samples   int64  `json:"samples"` // in block files
	Series    int    `json:"series"`
	Segments  int    `json:"log_segments"`
	LogBytes  int64  `json:"log_bytes"`
	Copied    int64  `json:"copied_bytes"` // files that could not be hard-linked
}

const (
	// unfinished is the prefix of the name of a backup that is being made. A finished
	// backup cannot have such a name, see backupName. abandoned is the prefix of one that is
	// being removed.
	unfinished   = ".unfinished-"
	abandoned    = unfinished + "~"
	backupDigits = 100 // longest name

	// MaxBackups bounds what requests for backups leave on the disk. Hard links keep the
	// space of files that the store has removed.
	MaxBackups = 1000
)

var backupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// A BackupSource is a running store that is backed up.
type BackupSource struct {
	Dir    string
	Series int // number of series

	// Checkpoint writes all acknowledged samples to block files, so that little of the
	// log has to be copied.
	Checkpoint func() error

	// Pin copies catalogue and log as of one moment, and returns the block files that
	// belong to it, held until release is called.
	Pin func(catalogueDir string, copyLog func(from, end wal.Segment) error) (files []*blockfile.File, release func(), err error)

	// Beside has functions that copy other data in the store's directory, by its name
	// there, to a directory that does not exist yet. Each copy is consistent at its own
	// moment, after the call of Backup.
	Beside map[string]func(dir string) error

	// Explain turns the error of a full disk into that of a store that takes no writes.
	Explain func(error) error
}

// Backup makes a consistent copy of a running store, a directory of the given name in
// parent that is a store by itself. The directory gets its name only once it is complete
// and durable. Block files are hard links where the file system allows it: they never
// change. A name that is invalid for a file or already exists is a
// *store.InputError. One caller at a time.
func Backup(ctx context.Context, disk vfs.FS, parent, name string, source BackupSource) (*BackupReport, error) {
	if !backupName.MatchString(name) || len(name) > backupDigits {
		return nil, &store.InputError{Reason: fmt.Sprintf("backup %s: a name has 1 to %d letters, digits, '.', '_' and '-', the first a letter or digit", strconv.Quote(clip.Text(name, backupDigits)), backupDigits)}
	}
	b := &backup{
		ctx: ctx, fs: disk, parent: parent, source: source,
		dir:    disk.PathJoin(parent, name),
		report: &BackupReport{Series: source.Series},
	}
	b.tmp, b.report.Dir = disk.PathJoin(parent, unfinished+name), b.dir
	if name == datadir.Tenants {
		return nil, &store.InputError{Reason: fmt.Sprintf("backup %s: below %s are the backups of tenants; choose another name", name, b.dir)}
	}
	if _, err := disk.Stat(b.dir); err == nil {
		return nil, &store.InputError{Reason: fmt.Sprintf("backup %s: %s exists; choose another name, or remove it", name, b.dir)}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("backup %s: %w", name, err)
	}
	if err := errors.Join(b.removeUnfinished(), b.room()); err != nil {
		return nil, fmt.Errorf("backup %s: %w", name, err)
	}
	if err := b.run(); err != nil {
		return nil, fmt.Errorf("backup %s: %w", name, source.Explain(err))
	}
	return b.report, nil
}

// backup is one backup under way.
type backup struct {
	ctx    context.Context
	fs     vfs.FS
	parent string // of dir
	source BackupSource
	dir    string
	tmp    string
	report *BackupReport
}

func (b *backup) path(name string) string { return b.fs.PathJoin(b.tmp, name) }

// removeUnfinished removes backups that a crash has interrupted. Each would hold the disk
// space of its linked block files for ever. A locked backup is being made by another server
// that uses the same directory for backups.
func (b *backup) removeUnfinished() error {
	names, err := safefile.List(b.fs, b.parent)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, unfinished) {
			continue
		}
		if err := b.removeAbandoned(name); err != nil {
			return fmt.Errorf("remove an incomplete backup: %w", err)
		}
	}
	return nil
}

// removeAbandoned removes an unfinished backup, unless it is being made. It first renames the
// backup, because the other server may just have finished the backup and released the lock.
// Then either that server finds no backup to publish and reports an error, or it has
// published the backup, and nothing is left to rename. If the files were removed one by one
// without the rename, a backup published meanwhile would lack them.
func (b *backup) removeAbandoned(name string) error {
	dir := b.fs.PathJoin(b.parent, name)
	if info, err := b.fs.Stat(dir); err != nil || !info.IsDir() {
		return nil // already published or removed, or not a backup: a backup is a directory
	}
	lock, err := datadir.Lock(b.fs, dir)
	switch {
	case errors.As(err, new(*datadir.LockedError)):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil // published or removed
	case err != nil:
		return err
	}
	if err := lock.Close(); err != nil { // Windows cannot rename a directory in which a file is open
		return err
	}
	aside := b.fs.PathJoin(b.parent, abandoned+strings.TrimPrefix(strings.TrimPrefix(name, abandoned), unfinished))
	if aside != dir {
		if err := b.fs.RemoveAll(aside); err != nil {
			return err
		}
		err := b.fs.Rename(dir, aside)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return b.fs.RemoveAll(aside)
}

// room refuses one backup too many.
func (b *backup) room() error {
	names, err := safefile.List(b.fs, b.parent)
	if err != nil {
		return err
	}
	if len(names) >= MaxBackups {
		return &store.LimitError{Limit: "backups", Max: MaxBackups, Need: int64(len(names)) + 1, What: "keep backups in " + b.parent + "; remove old ones"}
	}
	return nil
}

// run makes the backup while it holds the lock of the unfinished one, see removeUnfinished.
// If another server holds the lock, run leaves that server's backup alone.
func (b *backup) run() error {
	if err := b.fs.MkdirAll(b.tmp, 0o750); err != nil {
		return err
	}
	lock, err := datadir.Lock(b.fs, b.tmp)
	if err != nil {
		return err
	}
	made, err := b.fill()
	if err == nil {
		err = b.sync(made)
	}
	// The finished backup has no lock file: Windows cannot rename a directory in which a
	// file is open. From here on another server may mistake the backup for one that a crash
	// has interrupted (see removeAbandoned), so all slow steps come before.
	err = errors.Join(err, lock.Close(), b.fs.Remove(b.path(datadir.LockFile)))
	if err == nil {
		err = b.publish()
	}
	if err != nil {
		return errors.Join(err, b.fs.RemoveAll(b.tmp))
	}
	return nil
}

// fill makes the content of the backup and returns its directories.
func (b *backup) fill() (made []string, err error) {
	for _, dir := range []string{b.path(datadir.Blocks), b.path(datadir.Log)} {
		if err := b.fs.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
	}
	if err := b.source.Checkpoint(); err != nil {
		return nil, err
	}
	files, release, err := b.source.Pin(b.path(datadir.Catalogue), b.log)
	if err != nil {
		return nil, err
	}
	defer release()
	for _, f := range files {
		if err := b.blockFile(f); err != nil {
			return nil, err
		}
	}
	made = []string{b.path(datadir.Blocks), b.path(datadir.Log), b.path(datadir.Catalogue)}
	for name, copyTo := range b.source.Beside {
		if err := copyTo(b.path(name)); err != nil {
			return nil, err
		}
		made = append(made, b.path(name))
	}
	return made, nil
}

// sync makes the names in the directories durable.
func (b *backup) sync(made []string) error {
	for _, dir := range append(made, b.tmp) {
		if err := safefile.SyncDir(b.fs, dir); err != nil {
			return err
		}
	}
	return nil
}

// publish gives the backup its name.
func (b *backup) publish() error {
	if err := b.fs.Rename(b.tmp, b.dir); err != nil {
		return err
	}
	if err := errors.Join(safefile.SyncDir(b.fs, b.parent), safefile.SyncDir(b.fs, b.fs.PathDir(b.parent))); err != nil {
		return errors.Join(err, b.fs.RemoveAll(b.dir)) // a failed backup must not keep its name
	}
	return nil
}

// log copies the segments [from, end).
func (b *backup) log(from, end wal.Segment) error {
	segments, err := wal.Segments(b.fs, b.fs.PathJoin(b.source.Dir, datadir.Log))
	if err != nil {
		return err
	}
	for _, n := range segments {
		if n < from || n >= end {
			continue
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
		dst := b.fs.PathJoin(b.path(datadir.Log), n.FileName())
		// Never a link: the file of a segment is reused later.
		if err := safefile.Copy(b.fs, b.fs.PathJoin(b.fs.PathJoin(b.source.Dir, datadir.Log), n.FileName()), dst); err != nil {
			return err
		}
		info, err := b.fs.Stat(dst)
		if err != nil {
			return err
		}
		b.report.Segments++
		b.report.LogBytes += info.Size()
		b.report.Copied += info.Size()
	}
	return nil
}

// blockFile links a file into the backup, or copies it if it cannot be linked.
func (b *backup) blockFile(f *blockfile.File) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	dst := datadir.BlockPath(b.fs, b.tmp, f.Number)
	if err := b.fs.Link(f.Path, dst); err != nil {
		if err := safefile.Copy(b.fs, f.Path, dst); err != nil {
			return err
		}
		b.report.Copied += f.Bytes
	}
	b.report.Files++
	b.report.FileBytes += f.Bytes
	b.report.Samples += f.Samples
	return nil
}
