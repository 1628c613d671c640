package spool

import (
	"fmt"
	"time"

	"varve/internal/store"
	"varve/internal/units"
)

// spaceInterval is how often the free space is looked at.
const spaceInterval = time.Second

// lookAtSpace blocks or unblocks writes. To be unblocked takes a quarter more
// space than to be blocked, so that the spool does not go back and forth.
func (s *Spool) lookAtSpace() {
	free, known := s.freeBytes()
	least := s.cfg.MinFreeBytes
	switch blocked := s.blocked.Load() != nil; {
	case !blocked && known && free < least:
		s.block("the disk is nearly full", fmt.Errorf("%v are free, spool.min_free_bytes is %v", free, least))
	case blocked && (!known || free >= least+least/4):
		s.unblock()
	}
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
	e := &store.UnavailableError{Reason: reason + "; the spool takes no writes until there is space: free some, or enlarge the disk", Err: err}
	if s.blocked.CompareAndSwap(nil, e) {
		s.metrics.spaceBlocks.Inc()
		s.logger.Error("writes are refused: "+reason, "error", err)
	}
	return e
}

// unblock takes writes again, with a new log if the old one broke.
func (s *Spool) unblock() {
	if s.log.Load().Err() != nil {
		if err := s.reopenLog(); err != nil {
			s.logger.Warn("the write-ahead log can not be opened again yet", "error", err)
			return
		}
	}
	s.blocked.Store(nil)
	s.logger.Info("there is space again, writes are taken")
}
