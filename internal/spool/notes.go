package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"varve/internal/downsample"
	"varve/internal/safefile"
)

const (
	hoursMax  = 64 << 20 // size limit of the file "hours", in bytes
	hoursName = "hours"  // hours of samples that a replay found, until their notes are stored
	notedName = "noted"  // exists after an orderly shutdown: the notes of all samples in the log are stored
)

// Notes tell other packages about the samples in the log: see downsample.Journal. The
// spool trims them before it releases a part of the log, and, if the log is full, before
// it removes the whole log.
func (s *Spool) Notes() *downsample.LogNotes { return &s.notes }

// openNotes reads the hours that an earlier start has found and whose notes are not stored yet.
func (s *Spool) openNotes() error {
	path := s.path(hoursName)
	s.notes.Store = func(_ context.Context, text []byte) error {
		return safefile.Replace(s.fs, path, safefile.SealBlank(text))
	}
	s.notes.Forget = func(context.Context) error { return safefile.Remove(s.fs, path) }
	if err := s.takeNoted(); err != nil {
		return fmt.Errorf("find out whether the spool was closed: %w", err)
	}
	text, err := safefile.Read(s.fs, path, hoursMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = safefile.CheckSealBlank(text)
	}
	if err == nil {
		err = s.notes.Restore(text)
	}
	if err != nil {
		return fmt.Errorf("read the record of hours with samples in the log, from %s: %w; if the file cannot be restored, remove it: "+
			"buckets of points that arrived late before the last start are then not recomputed", path, err)
	}
	return nil
}

// takeNoted sets noted if the notes about all samples in the log are stored. It removes the
// file that says so, since that is no longer true after the next append.
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

// closeNotes has the notes stored at shutdown, although the next start would find their
// samples in the log. So the next start need not make the notes again, and it may be an
// earlier version, which cannot.
func (s *Spool) closeNotes() {
	err := s.notes.Trim(s.ctx)
	if err == nil {
		err = safefile.Replace(s.fs, s.path(notedName), nil)
	}
	if err != nil {
		s.logger.Info("notes of late points could not be stored; the next start recovers them from the log", "error", err)
	}
}
