package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"varve/internal/blockfile"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/store"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// BackupDir is the directory that backups are made in.
func (s *Store) BackupDir() string {
	if s.cfg.BackupDir != "" {
		return s.cfg.BackupDir
	}
	return s.path(datadir.Backups)
}

// AlsoBackUp makes backups include a copy of other data in the store's directory, see
// [offline.BackupSource]. It is called before the first backup.
func (s *Store) AlsoBackUp(name string, copyTo func(dir string) error) {
	s.backingUp.Lock()
	defer s.backingUp.Unlock()
	if s.backedUpBeside == nil {
		s.backedUpBeside = map[string]func(string) error{}
	}
	s.backedUpBeside[name] = copyTo
}

// TimelinesGone reports whether a store of timelines was beside this one, and its directory is
// missing now: a new one would silently lack its events.
func (s *Store) TimelinesGone() (bool, error) {
	s.installing.Lock()
	had := s.catalogue.Meta.Timelines
	s.installing.Unlock()
	_, err := s.fs.Stat(s.path(datadir.Timelines))
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return had, nil
}

// SaveTimelines records in the catalogue that a store of timelines exists beside this
// one. On a full disk it records nothing, because the catalogue must not be written to.
func (s *Store) SaveTimelines() error {
	s.installing.Lock()
	defer s.installing.Unlock()
	if s.catalogue.Meta.Timelines || s.log.Writable() != nil {
		return nil
	}
	return s.commit(catalogue.Change{Meta: func(m *catalogue.Meta) { m.Timelines = true }}, nil)
}

// Backup makes a consistent copy of the store, as [offline.Backup] does, in BackupDir.
// The copy has everything that was acknowledged before the call. The store remains in use
// during the backup. A second backup at the same time fails with a *store.UnavailableError.
func (s *Store) Backup(ctx context.Context, name string) (*offline.BackupReport, error) {
	if err := s.log.CheckOpen(ctx); err != nil {
		return nil, err
	}
	if !s.backingUp.TryLock() {
		return nil, &store.UnavailableError{Reason: "another backup is being made; try again when it is done"}
	}
	defer s.backingUp.Unlock()
	report, err := offline.Backup(ctx, s.fs, s.BackupDir(), name, offline.BackupSource{
		Dir: s.dir, Series: s.SeriesCount(), Checkpoint: s.checkpoint, Explain: s.orNoRoom, Beside: s.backedUpBeside,
		Pin: func(catalogueDir string, copyLog func(from, end wal.Segment) error) ([]*blockfile.File, func(), error) {
			st, err := s.pin(ctx, catalogueDir, copyLog)
			if err != nil {
				return nil, nil, err
			}
			return st.blockFiles(), func() { s.release(st) }, nil
		},
	})
	if err != nil {
		return nil, err
	}
	s.logger.Info("backup made", "dir", report.Dir, "files", report.Files, "samples", report.Samples, "copied_bytes", report.Copied)
	return report, nil
}

// orNoRoom turns an error for lack of disk space into a *store.UnavailableError. If the store's
// own disk has space, the backup is on another one.
func (s *Store) orNoRoom(err error) error {
	free, known := s.disk.FreeSpace()
	if !known || free < s.cfg.MinFreeBytes || !wal.NoSpace(err) || errors.As(err, new(*store.UnavailableError)) {
		return s.orFull(err)
	}
	return &store.UnavailableError{Err: err, Reason: fmt.Sprintf("the disk of %s (%s) has no room for it; remove old backups there, or enlarge the disk; the store keeps running",
		s.BackupDir(), s.section.Key("backup_dir"))}
}

// pin copies catalogue and log as of one moment and returns the files that
// belong to it, held.
//
// Under installing, neither files nor deletions change, so the catalogue's copy
// names exactly the files of the state. Under checkpointing, no checkpoint moves
// the beginning of the log or releases segments. The copy ends with a complete
// segment, so it has every deletion that a merge has applied to those files.
func (s *Store) pin(ctx context.Context, catalogueDir string, copyLog func(from, end wal.Segment) error) (*state, error) {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	if s.log.Closed() {
		return nil, store.ErrClosed
	}
	m, err := s.freeze(catalogueDir)
	if err != nil {
		return nil, err
	}
	if err = m.rotated.Wait(ctx); err == nil {
		err = copyLog(m.from, m.end)
	}
	if err != nil {
		s.release(m.state)
		return nil, fmt.Errorf("copy the log: %w", err)
	}
	return m.state, nil
}

// moment is the state that a backup copies.
type moment struct {
	state     *state
	from, end wal.Segment    // [from, end) are part of it
	rotated   writelog.Entry // when it is durable, segment end exists
}

// freeze copies the catalogue and begins a log segment.
func (s *Store) freeze(catalogueDir string) (m moment, err error) {
	s.installing.Lock()
	defer s.installing.Unlock()
	if err := s.catalogue.CopyTo(catalogueDir); err != nil {
		return m, fmt.Errorf("copy the catalogue: %w", err)
	}
	m.from = s.catalogue.LogFrom()
	s.order.Lock()
	defer s.order.Unlock()
	if m.end, err = s.log.Current().Complete(); err != nil { // so that segment m.from is part of the copy
		return m, fmt.Errorf("begin a log segment: %w", err)
	}
	m.rotated, m.state = s.log.Last(), s.acquire()
	return m, nil
}
