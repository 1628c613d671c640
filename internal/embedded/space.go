package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// spaceInterval is how often the free space is looked at.
const spaceInterval = time.Second

// spaceKeeper makes the store read-only before the disk is full, and takes
// writes again when there is space.
func (s *Store) spaceKeeper(ctx context.Context) {
	defer s.background.Done()
	tick := time.NewTicker(spaceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.lookAtSpace()
		}
	}
}

// lookAtSpace blocks or unblocks writes.
func (s *Store) lookAtSpace() {
	free, known := s.freeBytes()
	switch blocked := s.blocked.Load() != nil; {
	case !blocked && known && free < s.cfg.MinFreeBytes:
		s.block("the disk is nearly full", nil)
	case blocked && (!known || free >= s.reserve().Resume()):
		s.unblock()
	}
}

func (s *Store) reserve() store.DiskReserve {
	return store.DiskReserve{
		Owner: "the store", Setting: "embedded.min_free_bytes", Least: s.cfg.MinFreeBytes,
		WayOut: "free some space, delete data, or enlarge the disk",
	}
}

// A blockage is why writes are refused until there is space.
type blockage struct {
	reason string
	err    error // cause, may be nil
	tried  bool  // an attempt to go on has failed; the space keeper's
}

// blockageError tells of a blockage with the numbers of this moment.
func (s *Store) blockageError(b *blockage) *store.UnavailableError {
	free, known := s.freeBytes()
	return s.reserve().Full(b.reason, b.err, free, known)
}

// freeBytes is the space that the data directory's disk has left. It is unknown
// where the file system does not say, or nobody asked to look.
func (s *Store) freeBytes() (units.Bytes, bool) {
	if s.cfg.MinFreeBytes == 0 {
		return 0, false
	}
	usage, err := s.fs.GetDiskUsage(s.dir)
	return units.Bytes(usage.AvailBytes), err == nil
}

// block refuses writes until unblock.
func (s *Store) block(reason string, err error) error {
	if log := (*store.UnavailableError)(nil); errors.As(err, &log) {
		err = log.Err // the log's own way out is to restart, which this does without
	}
	b := &blockage{reason: reason, err: err}
	e := s.blockageError(b)
	if s.blocked.CompareAndSwap(nil, b) {
		s.metrics.spaceBlocks.Inc()
		s.log.Error("writes are refused until there is space", "error", e)
	}
	return e
}

// unblock takes writes again, with a new log if the old one broke.
func (s *Store) unblock() {
	if s.wal.Load().Err() != nil {
		if err := s.reopenLog(); err != nil {
			level := slog.LevelDebug // this comes each second
			if b := s.blocked.Load(); b != nil && !b.tried {
				level, b.tried = slog.LevelWarn, true
			}
			s.log.Log(context.Background(), level, "a new write-ahead log cannot be begun yet; it is tried each second", "error", err)
			return
		}
	}
	s.blocked.Store(nil)
	s.log.Info("there is space again, writes are taken")
	s.askCheckpoint() // what could not be written, and what the broken log lost
}

// reopenLog puts a new log in place of one that failed for lack of space.
//
// Whatever was acknowledged is in the old segments, which are replayed before
// the new ones. The batch that failed may be in memory and not in the log: its
// samples may or may not survive, but series that it introduced count as
// logged, so all that no checkpoint has written yet are logged again. So are
// deletions that failed: series may have been forgotten because of them, and
// come again under other ids.
func (s *Store) reopenLog() error {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	s.wal.Load().Close() // its error is the one that brought us here
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
		// The old log may have been to begin segments that it never wrote; the
		// new one has their numbers, and what is newer than the pending head.
		s.pending.log = min(s.pending.log, first)
	}
	payload := record.AppendDefinitions(nil, define)
	payload = record.AppendSamples(payload, &store.Batch{}, nil)
	logged := entry{log, log.Append(record.TypeBatch, payload)}
	s.order.unsynced = s.undurable()
	for i, d := range s.order.unsynced {
		if payload, err = record.AppendDeletion(nil, *d.Deletion); err != nil {
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
	if b := s.blocked.Load(); b != nil {
		return s.blockageError(b)
	}
	return nil
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
	free, known := s.freeBytes()
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
	if free >= need+reserve || need == 0 {
		return nil
	}
	return &spaceError{len(files), need, free, reserve}
}

// spaceForMore ends a merge that needs more than was estimated.
func (s *Store) spaceForMore() error {
	if free, known := s.freeBytes(); known && free < s.cfg.MinFreeBytes/4 {
		return &spaceError{free: free}
	}
	return nil
}
