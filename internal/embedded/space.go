package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// spaceInterval is how often the free space is looked at.
const spaceInterval = time.Second

// newDiskGuard makes the guard of the data directory's disk.
func (s *Store) newDiskGuard() *store.DiskGuard {
	return &store.DiskGuard{
		Owner: "the store", Setting: "embedded.min_free_bytes", Least: s.cfg.MinFreeBytes,
		WayOut: "free some space, delete data, or enlarge the disk",
		Free: func() (units.Bytes, error) {
			usage, err := s.fs.GetDiskUsage(s.dir)
			return units.Bytes(usage.AvailBytes), err
		},
		Refused: func() { s.metrics.spaceBlocks.Inc() },
		Logger:  s.log,
	}
}

// lookAtSpace refuses writes or takes them again.
func (s *Store) lookAtSpace() {
	if s.disk.Look(s.replaceFailedLog) {
		s.askCheckpoint() // for what could not be written, and what the failed log lost
	}
}

// replaceFailedLog replaces the log if it has failed.
func (s *Store) replaceFailedLog() error {
	if s.wal.Load().Err() == nil {
		return nil
	}
	if err := s.reopenLog(); err != nil {
		return fmt.Errorf("begin a new write-ahead log: %w", err)
	}
	return nil
}

// reopenLog puts a new log in place of one that failed for lack of space.
//
// Whatever was acknowledged is in the old segments, which are replayed before
// the new ones. The batch that failed may be in memory and not in the log: its
// samples may or may not survive, but series that it introduced count as
// logged, so all that no checkpoint has written yet are logged again. So are
// deletions that failed: series may have been forgotten because of them, and
// may be created again under other ids.
func (s *Store) reopenLog() error {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	s.wal.Load().Close() // its error is the reason for this call
	s.installing.Lock()
	from := s.catalogue.logFrom()
	s.installing.Unlock()
	log, err := s.openLog(from)
	if err != nil {
		return err
	}
	if err := s.beginLog(log); err != nil {
		return errors.Join(err, log.Discard())
	}
	return nil
}

// beginLog puts an empty log in place and logs in it what no checkpoint has
// written yet. checkpointing must be held.
func (s *Store) beginLog(log *wal.Log) error {
	s.order.Lock()
	define := s.order.define
	if s.pending != nil {
		define = append(s.pending.define[:len(s.pending.define):len(s.pending.define)], define...)
	}
	first, err := log.Rotate() // nothing is in it: that is where it begins
	if err != nil {
		s.order.Unlock()
		return err
	}
	if s.pending != nil {
		// The old log may have numbered segments that it never wrote; the
		// new one has their numbers, and what is newer than the pending head.
		s.pending.log = min(s.pending.log, first)
	}
	logged := s.logBatch(log, define, noSamples)
	s.order.unsynced = s.undurable()
	for i, d := range s.order.unsynced {
		payload, err := record.AppendDeletion(nil, *d.Deletion)
		if err != nil {
			s.order.Unlock()
			return err
		}
		logged = entry{log, log.Append(record.TypeDeletion, payload)}
		s.order.unsynced[i].entry = logged
	}
	s.wal.Store(log)
	s.order.Unlock()
	return logged.wait(context.Background())
}

// writable returns why the store takes no writes, nil if it does.
func (s *Store) writable() error {
	if e := s.failure.Load(); e != nil {
		return e
	}
	return s.disk.Err()
}

// orFull turns an error for lack of disk space into a *store.UnavailableError.
func (s *Store) orFull(err error) error {
	if wal.NoSpace(err) && !errors.As(err, new(*store.UnavailableError)) {
		return s.disk.Full(err)
	}
	return err
}

// A spaceError means that a merge does not fit the disk.
type spaceError struct {
	files      int
	need, free units.Bytes // need of 0: it was more than estimated
	reserve    units.Bytes
}

func (e *spaceError) Error() string {
	if e.need == 0 {
		return fmt.Sprintf("merge block files: only %s are free, which embedded.min_free_bytes keeps for writing: free some space, delete data, or enlarge the disk", sizeText(int64(e.free)))
	}
	return fmt.Sprintf("merge %d block files: it takes about %s beside the %s that half of embedded.min_free_bytes keeps, %s are free: free some space, delete data, or enlarge the disk",
		e.files, sizeText(int64(e.need)), sizeText(int64(e.reserve)), sizeText(int64(e.free)))
}

// spaceToMerge returns why the disk has no room for the output of a merge beside
// its input, nil if it has. merging must be held.
func (s *Store) spaceToMerge(st *state, files []*openFile) *spaceError {
	free, known := s.disk.FreeSpace()
	if !known {
		return nil
	}
	var need units.Bytes
	for _, f := range files {
		left := 1.0
		if !f.outgrew {
			left, _ = st.left(f)
		}
		need += units.Bytes(float64(f.Bytes) * left)
	}
	reserve := s.cfg.MinFreeBytes / 2
	if free >= need+reserve {
		return nil
	}
	return &spaceError{len(files), need, free, reserve}
}

// spaceForMore returns a *spaceError when a merge has to end, because its output
// is larger than estimated or something else fills the disk.
func (s *Store) spaceForMore() error {
	if free, known := s.disk.FreeSpace(); known && free < s.cfg.MinFreeBytes/4 {
		return &spaceError{free: free}
	}
	return nil
}
