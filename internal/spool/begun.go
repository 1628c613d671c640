package spool

import (
	"errors"
	"fmt"
	"io/fs"

	"varve/internal/safefile"
	"varve/internal/wal"
)

// begunName is an empty file that exists while the log has segments. It distinguishes a
// directory that was restored without its log from a new one.
const begunName = "log_begun"

// reportMissingLog logs an error if the log is missing, but lets the spool open: it cannot be
// known whether samples were waiting in the log.
func (s *Spool) reportMissingLog() error {
	segments, err := wal.Segments(s.fs, s.path(logName))
	if err != nil || len(segments) > 0 {
		return err
	}
	if begun, err := s.begun(); err != nil || !begun {
		return err
	}
	s.logger.Error("the write-ahead log of the spool is missing, so the spool starts empty. Samples that waited there for the remote store will not be written to it. "+
		"To keep them, stop the server, put the log back, and start again", "log", s.path(logName))
	return nil
}

// saveBegun creates the file. On a full disk it does nothing.
func (s *Spool) saveBegun() error {
	if s.log.Full() {
		return nil
	}
	if begun, err := s.begun(); err != nil || begun {
		return err
	}
	if err := safefile.Replace(s.fs, s.path(begunName), nil); err != nil && !wal.NoSpace(err) {
		return fmt.Errorf("store that the log of the spool was begun: %w", err)
	}
	return nil
}

func (s *Spool) begun() (bool, error) {
	_, err := s.fs.Stat(s.path(begunName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("find out whether the log of the spool was begun: %w", err)
	}
	return true, err
}
