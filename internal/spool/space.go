package spool

import (
	"fmt"
	"time"

	"varve/internal/store"
	"varve/internal/units"
)

// spaceInterval is how often the free space is looked at.
const spaceInterval = time.Second

// newDiskGuard makes the guard of the directory's disk.
func (s *Spool) newDiskGuard() *store.DiskGuard {
	return &store.DiskGuard{
		Owner: "the spool", Setting: "cassandra.spool.min_free_bytes", Least: s.cfg.MinFreeBytes,
		WayOut: "free some space, or enlarge the disk",
		Free: func() (units.Bytes, error) {
			usage, err := s.fs.GetDiskUsage(s.dir)
			return units.Bytes(usage.AvailBytes), err
		},
		Refused: func() { s.metrics.spaceBlocks.Inc() },
		Logger:  s.logger,
	}
}

// lookAtSpace refuses writes or takes them again.
func (s *Spool) lookAtSpace() { s.disk.Look(s.replaceFailedLog) }

// replaceFailedLog replaces the log if it has failed.
func (s *Spool) replaceFailedLog() error {
	if s.log.Load().Err() == nil {
		return nil
	}
	if err := s.reopenLog(); err != nil {
		return fmt.Errorf("begin a new write-ahead log: %w", err)
	}
	return nil
}
