package spool

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"varve/internal/store"
	"varve/internal/units"
)

// spaceInterval is how often the free space is looked at.
const spaceInterval = time.Second

// lookAtSpace blocks or unblocks writes.
func (s *Spool) lookAtSpace() {
	free, known := s.freeBytes()
	switch blocked := s.blocked.Load() != nil; {
	case !blocked && known && free < s.cfg.MinFreeBytes:
		s.block("the disk is nearly full", nil)
	case blocked && (!known || free >= s.reserve().Resume()):
		s.unblock()
	}
}

func (s *Spool) reserve() store.DiskReserve {
	return store.DiskReserve{
		Owner: "the spool", Setting: "cassandra.spool.min_free_bytes", Least: s.cfg.MinFreeBytes,
		WayOut: "free some space, or enlarge the disk",
	}
}

// A blockage is why writes are refused until there is space.
type blockage struct {
	reason string
	err    error // cause, may be nil
	tried  bool  // an attempt to go on has failed; the keeper's
}

// blockageError tells of a blockage with the numbers of this moment.
func (s *Spool) blockageError(b *blockage) *store.UnavailableError {
	free, known := s.freeBytes()
	return s.reserve().Full(b.reason, b.err, free, known)
}

// freeBytes is the space that the directory's disk has left. It is unknown where
// the file system does not say, or nobody asked to look.
func (s *Spool) freeBytes() (units.Bytes, bool) {
	if s.cfg.MinFreeBytes == 0 {
		return 0, false
	}
	usage, err := s.fs.GetDiskUsage(s.dir)
	return units.Bytes(usage.AvailBytes), err == nil
}

// block refuses writes until unblock, with the error it returns.
func (s *Spool) block(reason string, err error) error {
	if log := (*store.UnavailableError)(nil); errors.As(err, &log) {
		err = log.Err // the log's own way out is to restart, which this does without
	}
	b := &blockage{reason: reason, err: err}
	e := s.blockageError(b)
	if s.blocked.CompareAndSwap(nil, b) {
		s.metrics.spaceBlocks.Inc()
		s.logger.Error("writes are refused until there is space", "error", e)
	}
	return e
}

// unblock takes writes again, with a new log if the old one broke.
func (s *Spool) unblock() {
	if s.log.Load().Err() != nil {
		if err := s.reopenLog(); err != nil {
			level := slog.LevelDebug // this comes each second
			if b := s.blocked.Load(); b != nil && !b.tried {
				level, b.tried = slog.LevelWarn, true
			}
			s.logger.Log(context.Background(), level, "a new write-ahead log cannot be begun yet; it is tried each second", "error", err)
			return
		}
	}
	s.blocked.Store(nil)
	s.logger.Info("there is space again, writes are taken")
}
