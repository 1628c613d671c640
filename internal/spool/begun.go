package spool

import (
	"errors"
	"fmt"
	"io/fs"

	"varve/internal/safefile"
	"varve/internal/wal"
)

// begunName is there from the first start on, as long as the log has segments. A directory that
// was restored in part, without its log, is so told from a new one.
const begunName = "log_begun"

// tellOfMissingLog logs that the log is missing. It is no error: nothing that is left tells whether
// samples were waiting in it.
func (s *Spool) tellOfMissingLog() error {
	segments, err := wal.Segments(s.fs, s.path(logName))
	if err != nil || len(segments) > 0 {
		return err
	}
	if _, err := s.fs.Stat(s.path(begunName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("find out whether the log of the spool was begun: %w", err)
	}
	s.logger.Error("the write-ahead log of the spool is missing; the spool begins empty. Samples that waited in it for the remote store are lost: "+
		"to keep them, stop the server, put the log back, and start again", "log", s.path(logName))
	return nil
}

// saveBegun stores that the log has segments, unless the disk is full.
func (s *Spool) saveBegun() error {
	if s.log.Full() {
		return nil
	}
	if _, err := s.fs.Stat(s.path(begunName)); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find out whether the log of the spool was begun: %w", err)
	}
	if err := safefile.Replace(s.fs, s.path(begunName), nil); err != nil && !wal.NoSpace(err) {
		return fmt.Errorf("store that the log of the spool was begun: %w", err)
	}
	return nil
}

// removeBegun comes before the log is removed as a whole.
func (s *Spool) removeBegun() error {
	err := s.fs.Remove(s.path(begunName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, safefile.SyncDir(s.fs, s.dir))
}
