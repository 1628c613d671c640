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

// lookAtSpace blocks or unblocks writes. To be unblocked takes a quarter more
// space than to be blocked, so that the store does not go back and forth.
func (s *Store) lookAtSpace() {
	free, known := s.freeBytes()
	least := s.cfg.MinFreeBytes
	switch blocked := s.blocked.Load() != nil; {
	case !blocked && known && free < least:
		s.block("the disk is nearly full", fmt.Errorf("%v are free, embedded.min_free_bytes is %v", free, least))
	case blocked && (!known || free >= least+least/4):
		s.unblock()
	}
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
	e := &store.UnavailableError{
		Reason: reason + "; the store takes no writes until there is space: free some, delete data, or enlarge the disk", Err: err,
	}
	if s.blocked.CompareAndSwap(nil, e) {
		s.metrics.spaceBlocks.Inc()
		s.log.Error("writes are refused: "+reason, "error", err)
	}
	return e
}

// unblock takes writes again, with a new log if the old one broke.
func (s *Store) unblock() {
	if s.wal.Load().Err() != nil {
		if err := s.reopenLog(); err != nil {
			s.log.Warn("the write-ahead log can not be opened again yet", "error", err)
			return
		}
	}
	s.blocked.Store(nil)
	s.log.Info("there is space again, writes are taken")
	s.askCheckpoint() // what could not be written, and what the broken log lost
}

// reopenLog puts a new log in place of one that failed for want of space.
//
// Whatever was acknowledged is in the old segments, which are replayed before
// the new ones. The batch that failed may be in memory and not in the log: its
// samples may or may not survive, but series that it introduced count as
// logged, so all that no checkpoint has written yet are logged again.
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
	s.wal.Store(log)
	s.order.Unlock()
	return logged.wait(context.Background())
}

// writable returns why the store takes no writes, nil if it does.
func (s *Store) writable() error {
	if e := s.failure.Load(); e != nil {
		return e
	}
	if e := s.blocked.Load(); e != nil {
		return e
	}
	return nil
}

// spaceToMerge reports whether the disk has room for the output of a merge
// beside its input.
func (s *Store) spaceToMerge(files []*openFile) bool {
	var need units.Bytes
	for _, f := range files {
		need += units.Bytes(f.Bytes)
	}
	free, known := s.freeBytes()
	if !known || free >= need+s.cfg.MinFreeBytes/2 {
		return true
	}
	s.metrics.mergesPutOff.Inc()
	s.log.Warn("a merge is put off for want of disk space", "files", len(files), "need", need, "free", free)
	return false
}
