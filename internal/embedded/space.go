package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"varve/internal/diskspace"
	"varve/internal/embedded/datadir"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// spaceInterval is how often the free space is checked.
const spaceInterval = time.Second

// newLog makes the log and the guard of its disk.
func (s *Store) newLog(o Options) {
	s.disk = &diskspace.Guard{
		Owner: "the store", Setting: s.section.Key("min_free_bytes"), Least: s.cfg.MinFreeBytes,
		WayOut:  "free some space, delete data, or enlarge the disk",
		Refused: func() { s.metrics.spaceBlocks.Inc() },
	}
	s.log = writelog.New(writelog.Options{
		FS: s.fs, Dir: s.path(datadir.Log), Config: s.cfg.Log, Series: s.series, Registerer: o.Registerer, Logger: s.logger,
		Disk: s.disk, DataDir: s.dir, Final: "the store accepts no more writes until it is restarted",
	})
	s.order.Mutex, s.refs = &s.log.Order, s.log.Refs()
}

// lookAtSpace refuses or accepts writes depending on the free disk space, and sets how
// large heads may become.
func (s *Store) lookAtSpace() {
	s.lookAtRoom()
	s.askIfLarge()
	if s.log.LookAtSpace(s.reopenLog) {
		s.askCheckpoint() // writes what an earlier checkpoint could not write, and what the failed log has lost
	}
}

// lookAtRoom sets the disk space that there is for the files of a checkpoint.
func (s *Store) lookAtRoom() {
	room := int64(math.MaxInt64)
	if free, known := s.disk.FreeSpace(); known {
		room = int64(max(0, free-s.cfg.MinFreeBytes))
	}
	s.diskRoom.Store(room)
}

// reopenLog puts a new log in the place of one that failed for lack of space.
//
// The failed batch may be in memory but not in the log. Its samples may or may not
// survive, but the series that it introduced count as logged. So all series that no
// checkpoint has written yet are logged again. Failed deletions are logged again too,
// because series may have been forgotten because of them, and may be created again
// under other ids.
func (s *Store) reopenLog() error {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	s.installing.Lock()
	from := s.catalogue.LogFrom()
	s.installing.Unlock()
	return s.log.Reopen(context.Background(), from, s.beginLog)
}

// beginLog logs in a new log what no checkpoint has written yet. checkpointing and the
// order lock must be held.
func (s *Store) beginLog(first wal.Segment) (writelog.Entry, error) {
	define := s.order.define
	if s.pending != nil {
		define = append(s.pending.define[:len(s.pending.define):len(s.pending.define)], define...)
		// The old log may have numbered segments that it never wrote. The new
		// log reuses their numbers, and has what is newer than the pending
		// head.
		s.pending.log = min(s.pending.log, first)
	}
	logged, _ := s.log.AppendBatch(record.TypeBatch, nil, define, nil)
	s.order.unsynced = s.undurable()
	for i, d := range s.order.unsynced {
		payload, err := record.AppendDeletion(nil, *d.Deletion)
		if err != nil {
			return logged, err
		}
		logged = s.log.AppendRecord(record.TypeDeletion, payload)
		s.order.unsynced[i].entry = logged
	}
	return logged, nil
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
	need, free units.Bytes // need = 0: the merge needs more than estimated
	reserve    units.Bytes
	key        string // the setting that requires the reserve
}

func (e *spaceError) Error() string {
	if e.need == 0 {
		return fmt.Sprintf("merge block files: only %s are free, and %s reserves them for writes: free some space, delete data, or enlarge the disk", e.free.Text(), e.key)
	}
	return fmt.Sprintf("merge %d block files: it takes about %s besides the %s that half of %s reserves, but only %s are free: free some space, delete data, or enlarge the disk",
		e.files, e.need.Text(), e.reserve.Text(), e.key, e.free.Text())
}

// spaceToMerge returns why the disk has no room for the output of a merge beside
// its input, nil if it has. merging must be held.
func (s *Store) spaceToMerge(st *state, files []*openFile) *spaceError {
	free, known := s.disk.FreeSpace()
	if !known {
		return nil
	}
	need := mergedSize(st, files)
	reserve := s.cfg.MinFreeBytes / 2
	if free >= need+reserve {
		return nil
	}
	return &spaceError{len(files), need, free, reserve, s.section.Key("min_free_bytes")}
}

// mergedSize estimates the size of the output of a merge. merging must be held.
func mergedSize(st *state, files []*openFile) (size units.Bytes) {
	for _, f := range files {
		left := 1.0
		if !f.outgrew {
			left, _ = st.left(f)
		}
		size += units.Bytes(float64(f.Bytes) * left)
	}
	return size
}

// spaceForMore returns a *spaceError when a merge has to end, because its output
// is larger than estimated or something else fills the disk.
func (s *Store) spaceForMore() error {
	if free, known := s.disk.FreeSpace(); known && free < s.cfg.MinFreeBytes/4 {
		return &spaceError{free: free, key: s.section.Key("min_free_bytes")}
	}
	return nil
}
