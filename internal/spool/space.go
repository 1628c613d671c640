package spool

import (
	"time"

	"varve/internal/diskspace"
	"varve/internal/writelog"
)

// spaceInterval is how often the free space is checked.
const spaceInterval = time.Second

// newLog creates the log and the guard of its disk.
func (s *Spool) newLog() {
	s.log = writelog.New(writelog.Options{
		FS: s.fs, Dir: s.path(logName), Config: s.cfg.Log, Series: s.series,
		Registerer: s.options.Registerer, Logger: s.logger, Check: s.options.Check,
		Disk: &diskspace.Guard{
			Owner: "the spool", Setting: s.options.Section.Key("min_free_bytes"), Least: s.cfg.MinFreeBytes,
			WayOut:  "free some space, or enlarge the disk",
			Refused: func() { s.metrics.spaceBlocks.Inc() },
		},
		DataDir: s.dir, Final: "the spool accepts no more writes until it is opened again",
	})
	s.order.Mutex, s.refs = &s.log.Order, s.log.Refs()
}

// lookAtSpace checks the free space and stops or resumes writes. Before that, a full log
// is cleared if all of it is drained.
func (s *Spool) lookAtSpace() {
	if s.log.Full() {
		if err := s.clearLog(); err != nil && s.ctx.Err() == nil {
			s.logger.Warn("the full log could not be cleared; will retry each second", "error", err)
		}
	}
	s.log.LookAtSpace(s.reopenLog)
}
