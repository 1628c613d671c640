package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"runtime"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

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
	Copied    int64  `json:"copied_bytes"` // not hard-linked
}

const (
	backupsName  = "backups"
	unfinished   = ".tmp" // ends the name of a backup that is being made
	backupDigits = 100    // longest name

	// maxBackups bounds what requests for backups leave on the disk. Hard links
	// keep the space of files that the store has given up.
	maxBackups = 1000
)

var backupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// BackupDir is the directory that backups are made in.
func (s *Store) BackupDir() string {
	if s.cfg.BackupDir != "" {
		return s.cfg.BackupDir
	}
	return s.path(backupsName)
}

// Backup makes a consistent copy of the store, a directory of the given name in
// BackupDir that is a store by itself. Everything acknowledged before the call
// is in it. The store goes on meanwhile. The directory appears under its name
// when it is complete and durable, else not at all. Block files are hard links
// where the file system allows it: they never change.
//
// A name that is not fit for a file or is taken is an *store.InputError, a
// second backup at the same time an *store.UnavailableError.
func (s *Store) Backup(ctx context.Context, name string) (*BackupReport, error) {
	if err := s.checkOpen(ctx); err != nil {
		return nil, err
	}
	if !backupName.MatchString(name) || len(name) > backupDigits {
		return nil, &store.InputError{Reason: fmt.Sprintf("backup %q: a name has 1 to %d letters, digits, '.', '_' and '-', the first a letter or digit", name, backupDigits)}
	}
	if !s.backingUp.TryLock() {
		return nil, &store.UnavailableError{Reason: "another backup is being made; try again when it is done"}
	}
	defer s.backingUp.Unlock()
	b := &backup{
		ctx: ctx, store: s, fs: s.fs,
		dir:    s.fs.PathJoin(s.BackupDir(), name),
		report: &BackupReport{Series: s.SeriesCount()},
	}
	b.tmp, b.report.Dir = b.dir+unfinished, b.dir
	if _, err := s.fs.Stat(b.dir); err == nil {
		return nil, &store.InputError{Reason: fmt.Sprintf("backup %s: %s exists; choose another name, or remove it", name, b.dir)}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("backup %s: %w", name, err)
	}
	if err := b.room(); err != nil {
		return nil, fmt.Errorf("backup %s: %w", name, err)
	}
	if err := b.run(); err != nil {
		return nil, errors.Join(fmt.Errorf("backup %s: %w", name, s.orFull(err)), s.fs.RemoveAll(b.tmp))
	}
	s.log.Info("backup made", "dir", b.dir, "files", b.report.Files, "samples", b.report.Samples, "copied_bytes", b.report.Copied)
	return b.report, nil
}

// backup is one backup under way.
type backup struct {
	ctx    context.Context
	store  *Store
	fs     vfs.FS
	dir    string
	tmp    string
	report *BackupReport
}

func (b *backup) path(name string) string { return b.fs.PathJoin(b.tmp, name) }

// room refuses one backup too many.
func (b *backup) room() error {
	names, err := b.fs.List(b.store.BackupDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(names) >= maxBackups {
		return &store.LimitError{Limit: "backups", Max: maxBackups, Need: int64(len(names)) + 1, What: "keep backups in " + b.store.BackupDir() + "; remove old ones"}
	}
	return nil
}

func (b *backup) run() error {
	if err := b.fs.RemoveAll(b.tmp); err != nil { // of a backup that a crash ended
		return err
	}
	for _, dir := range []string{b.path(blocksName), b.path(logName)} {
		if err := b.fs.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// What is acknowledged by now goes to files, so that little of the log has
	// to be copied while checkpoints wait.
	if err := b.store.checkpoint(); err != nil {
		return err
	}
	st, err := b.pin()
	if err != nil {
		return err
	}
	defer b.store.release(st)
	for _, f := range st.files {
		if err := b.blockFile(f); err != nil {
			return err
		}
	}
	for _, dir := range []string{b.path(blocksName), b.path(logName), b.path(catalogueName), b.tmp} {
		if err := syncDirOf(b.fs, dir); err != nil {
			return err
		}
	}
	if err := b.fs.Rename(b.tmp, b.dir); err != nil {
		return err
	}
	parent := b.store.BackupDir()
	if err := errors.Join(syncDirOf(b.fs, parent), syncDirOf(b.fs, b.fs.PathDir(parent))); err != nil {
		return errors.Join(err, b.fs.RemoveAll(b.dir)) // a failed backup must not keep its name
	}
	return nil
}

// pin copies catalogue and log as of one moment and returns the files that
// belong to it, held.
//
// Under installing, neither files nor deletions change, so the catalogue's copy
// names exactly the files of the state. Under checkpointing, no checkpoint moves
// the beginning of the log or gives segments up. The segments are copied up to
// one that is complete, which holds every deletion that a merge has applied to
// those files.
func (b *backup) pin() (*state, error) {
	s := b.store
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	m, err := b.freeze()
	if err != nil {
		return nil, err
	}
	if err = m.rotated.wait(b.ctx); err == nil {
		err = b.log(m.from, m.end)
	}
	if err != nil {
		s.release(m.state)
		return nil, fmt.Errorf("copy the log: %w", err)
	}
	return m.state, nil
}

// moment is the one that a backup is of.
type moment struct {
	state     *state
	from, end wal.Segment // [from, end) are part of it
	rotated   entry       // when it is durable, segment end is there
}

// freeze copies the catalogue and begins a log segment.
func (b *backup) freeze() (m moment, err error) {
	s := b.store
	s.installing.Lock()
	defer s.installing.Unlock()
	if err := b.catalogue(); err != nil {
		return m, fmt.Errorf("copy the catalogue: %w", err)
	}
	m.from = s.catalogue.logFrom()
	s.order.Lock()
	defer s.order.Unlock()
	log := s.wal.Load()
	if m.end, err = log.Rotate(); err != nil {
		return m, fmt.Errorf("begin a log segment: %w", err)
	}
	m.rotated, m.state = entry{log, log.Last()}, s.acquire()
	return m, nil
}

// catalogue copies the catalogue. Pebble panics with the error of a directory that
// it cannot sync, also when that is on the disk of the backup.
func (b *backup) catalogue() (err error) {
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
	return b.store.catalogue.db.Checkpoint(b.path(catalogueName), pebble.WithFlushedWAL())
}

// log copies the segments [from, end).
func (b *backup) log(from, end wal.Segment) error {
	segments, err := wal.Segments(b.fs, b.store.path(logName))
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
		dst := b.fs.PathJoin(b.path(logName), n.FileName())
		// Never a link: a segment's file is used again later.
		if err := copyFile(b.fs, b.fs.PathJoin(b.store.path(logName), n.FileName()), dst); err != nil {
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

// blockFile links a file into the backup, or copies it where that is not
// possible.
func (b *backup) blockFile(f *openFile) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	dst := b.fs.PathJoin(b.path(blocksName), blockName(f.Number))
	if err := b.fs.Link(f.Path, dst); err != nil {
		if err := copyFile(b.fs, f.Path, dst); err != nil {
			return err
		}
		b.report.Copied += f.Bytes
	}
	b.report.Files++
	b.report.FileBytes += f.Bytes
	b.report.Samples += f.Samples
	return nil
}
