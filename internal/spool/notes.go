package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"varve/internal/downsample"
	"varve/internal/safefile"
)

const (
	hoursName = "hours" // the hours of which samples were found in the log, until they are noted
	notedName = "noted" // is there after an orderly end: notes of all that is in the log are stored
)

// Notes are what others have to know of the log: see downsample.Journal. They are trimmed
// before a part of the log is given up, and while the log is full before all of it is.
func (s *Spool) Notes() *downsample.LogNotes { return &s.notes }

// openNotes reads what an earlier start has found and nobody has noted since.
func (s *Spool) openNotes() error {
	path := s.path(hoursName)
	s.notes.Store = func(_ context.Context, text []byte) error { return safefile.Replace(s.fs, path, text) }
	s.notes.Forget = func(context.Context) error {
		err := s.fs.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, safefile.SyncDir(s.fs, s.dir)) // or they come back after a crash
	}
	if err := s.takeNoted(); err != nil {
		return fmt.Errorf("look whether the spool was closed: %w", err)
	}
	f, err := s.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		var text []byte
		text, err = io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err == nil {
			err = s.notes.Restore(text)
		}
	}
	if err != nil {
		return fmt.Errorf("read of which hours samples were in the log, from %s: %w; if the file cannot be restored, remove it: "+
			"the buckets of points that came in late before the last start are then not computed again", path, err)
	}
	return nil
}

// takeNoted looks whether notes of what is in the log are stored. That is so no longer when
// something is appended.
func (s *Spool) takeNoted() error {
	path := s.path(notedName)
	if _, err := s.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	s.noted = true
	return errors.Join(s.fs.Remove(path), safefile.SyncDir(s.fs, s.dir))
}

// closeNotes has notes stored although the next start would find their samples in the log:
// it need not make them again then, and a version that knows nothing of that may be the
// next.
func (s *Spool) closeNotes() {
	err := s.notes.Trim(s.ctx)
	if err == nil {
		err = safefile.Replace(s.fs, s.path(notedName), nil)
	}
	if err != nil {
		s.logger.Info("notes of late points are not stored; the next start makes them again of the log", "error", err)
	}
}
