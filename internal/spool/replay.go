package spool

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// replayer rebuilds generations from the log.
type replayer struct {
	spool *Spool
	batch store.Batch
	kinds []model.Kind

	// renamed are the series whose id in the log differs from their id here: they
	// were forgotten and created again while the log still had the old records.
	renamed map[model.SeriesNumber]model.SeriesNumber
}

// replay rebuilds the generations from the log.
func (s *Spool) replay() error {
	began := time.Now()
	from, err := s.findFrom()
	if err != nil {
		return err
	}
	s.order.from = from
	r := &replayer{spool: s, renamed: make(map[model.SeriesNumber]model.SeriesNumber)}
	var failed error // to take a record, perhaps because a spilled file is damaged
	stats, err := wal.Replay(s.fs, s.path(logName), wal.ReplayOptions{From: from}, func(segment wal.Segment, typ byte, payload []byte) error {
		failed = r.record(segment, typ, payload)
		return failed
	})
	if err != nil && failed == nil {
		err = s.wayOut(err)
	}
	if err != nil {
		return fmt.Errorf("replay the write-ahead log of the spool: %w", err)
	}
	s.notes.EndReplay()
	s.series.Settle()
	s.dropDrained()
	s.settleStamps()
	if g := s.active.Load(); g.Samples() > 0 {
		arrived := began
		if g.firstMS != 0 { // the first version of the log has no write timestamps
			arrived = began.Add(-max(0, s.now().Sub(time.UnixMilli(g.firstMS))))
		}
		g.began.Store(&arrived)
	}
	if stats.Records > 0 {
		h := s.Health()
		s.logger.Info("replayed the write-ahead log of the spool", "records", stats.Records, "bytes", stats.Bytes, "samples", h.Samples,
			"generations", h.Generations, "cut_bytes", stats.CutBytes, "damages", stats.Damages, "took", time.Since(began))
	}
	return nil
}

// wayOut adds to the error of a damaged log how to start without it. The spool does not open with a
// damaged log: without the damaged records it would be unknown which of the samples behind them are
// valid.
func (s *Spool) wayOut(err error) error {
	if errors.As(err, new(*store.CorruptionError)) {
		return fmt.Errorf("%w; put the file back from a copy or, to start without the samples that wait for the remote store, move %s away as a whole", err, s.path(logName))
	}
	return err
}

// findFrom returns the segment at which the replay begins according to the newest mark;
// without a mark the first segment; 0 if there is none. Some of the earlier segments may
// still exist.
func (s *Spool) findFrom() (wal.Segment, error) {
	path := s.path(logName)
	segments, err := wal.Segments(s.fs, path)
	if err != nil {
		return 0, err
	}
	skip := func(*store.CorruptionError) bool { return true } // the replay reports damage
	for _, segment := range slices.Backward(segments) {
		var from wal.Segment
		_, err := wal.Replay(s.fs, path, wal.ReplayOptions{From: segment, To: segment, OnDamage: skip}, func(segment wal.Segment, typ byte, payload []byte) error {
			if !isMark(typ) {
				return nil
			}
			m, err := parseMark(segment, typ, payload)
			from = max(from, m.from)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("find the start of the write-ahead log of the spool: %w", err)
		}
		if from > 0 {
			return from, nil
		}
	}
	if len(segments) > 0 {
		return segments[0], nil
	}
	return 0, nil
}

func (r *replayer) record(segment wal.Segment, typ byte, payload []byte) error {
	s := r.spool
	s.active.Load().logBytes.Add(int64(len(payload)) + wal.RecordOverhead)
	s.logBytes.Add(int64(len(payload)) + wal.RecordOverhead)
	switch typ {
	case record.TypeBatch:
		if g := s.active.Load(); g.Samples() == 0 {
			g.place.Store(&place{head: head.New(int64(r.spool.cfg.generationBytes()))})
		}
		return r.apply(payload, s.order.stampMS)
	case typeBatch:
		if len(payload) < stampSize {
			return fmt.Errorf("batch of %d bytes has no write timestamp", len(payload))
		}
		if s.order.stampMS = int64(binary.LittleEndian.Uint64(payload)); s.order.stampMS <= 0 || s.order.stampMS > maxMark {
			return fmt.Errorf("batch has the write timestamp %d, which is out of range", s.order.stampMS)
		}
		return r.apply(payload[stampSize:], s.order.stampMS)
	case typeCut, typeFloor, typeCutV1, typeFloorV1:
		m, err := parseMark(segment, typ, payload)
		if err != nil {
			return err
		}
		s.order.floorMS = m.floorMS // lower than before if the clock was set back
		s.drainedNumber.Store(max(s.drainedNumber.Load(), m.drained))
		s.order.from = max(s.order.from, m.from)
		switch typ {
		case typeCut:
			s.order.number = max(s.order.number, m.number+1)
			return r.cut(segment, m, m.floorMS-1)
		case typeCutV1:
			s.order.number = max(s.order.number, m.floorMS+1)
			return r.cut(segment, m, m.number)
		case typeFloorV1:
			s.order.number = max(s.order.number, m.floorMS+1)
		case typeFloor:
			s.order.number = max(s.order.number, m.number)
		}
		return nil
	}
	return writelog.UnknownType(typ)
}

func (r *replayer) apply(payload []byte, stampMS int64) error {
	g := r.spool.active.Load()
	define := func(d record.Definition, _ model.Series) error { return r.define(g, d) }
	var err error
	if r.kinds, err = r.spool.log.Decode(payload, &r.batch, r.kinds[:0], define, r.samples); err != nil {
		return err
	}
	g.append(&r.batch, r.kinds, stampMS)
	if !r.spool.noted { // also for drained generations
		r.spool.notes.Replayed(&r.batch, r.spool.series.Key)
	}
	return nil
}

// define registers a series under the id that the log gives it, unless it already has
// an id.
func (r *replayer) define(g *Generation, d record.Definition) error {
	s := r.spool
	known, ok := s.series.Lookup([]byte(d.Key))
	switch key := s.series.Key(d.ID); {
	case ok && known != d.ID:
		r.renamed[d.ID] = known
		s.series.Expect(d.ID + 1)
		return nil
	case key != "" && key != d.Key:
		return fmt.Errorf("id %d is assigned to series %q, but belongs to %q", d.ID, d.Key, key)
	}
	s.series.Restore(d)
	g.defined.add(d.ID)
	if !s.order.indexed.has(d.ID) {
		s.addToIndex(d.ID, d.Key)
	}
	return nil
}

// samples decodes the samples of a batch record.
func (r *replayer) samples(payload []byte, b *store.Batch) error {
	series := r.spool.series
	if len(r.renamed) == 0 {
		return series.DecodeSamples(payload, b)
	}
	live := func(id model.SeriesNumber) model.SeriesNumber {
		if other, ok := r.renamed[id]; ok {
			return other
		}
		return id
	}
	err := record.Samples(payload, func(id model.SeriesNumber) model.Kind { return series.Kind(live(id)) }, b)
	for i := range b.Samples {
		b.Samples[i].Ref = store.Ref(live(model.SeriesNumber(b.Samples[i].Ref)))
	}
	return err
}

// cut ends a generation, as cutLocked did.
func (r *replayer) cut(segment wal.Segment, m mark, stampMS int64) error {
	s, g := r.spool, r.spool.active.Load()
	if g.Samples() == 0 { // its samples were in a damaged part
		return nil
	}
	began := time.UnixMilli(m.beganMS)
	g.began.Store(&began)
	s.freeze(g, s.newGeneration(0), m.number, stampMS, segment, writelog.Entry{})
	return s.spillReplayed()
}

// spillReplayed moves generations that do not fit into memory to files. On a full disk
// they stay in memory, up to max_memory.
func (s *Spool) spillReplayed() error {
	err := s.spillAll(context.Background())
	switch {
	case !wal.NoSpace(err):
		return err
	case s.memory() > int64(s.cfg.MaxMemory):
		return fmt.Errorf("%s of %v is reached and the disk is full: free some space, or start with a higher value: %w",
			s.options.Section.Key("max_memory"), s.cfg.MaxMemory, err)
	}
	return nil
}

// settleStamps makes the stamps of the replayed samples ascend. They descend if the clock
// was set back, see followClockLocked. If no samples follow, the floor of the last mark
// is the only record of the correct clock in the log.
func (s *Spool) settleStamps() {
	s.order.Lock()
	defer s.order.Unlock()
	mostMS := s.order.floorMS - 1
	if g := s.active.Load(); g.Samples() > 0 && g.firstMS != 0 {
		mostMS = min(mostMS, g.firstMS-1)
	}
	limitStamps(s.frozenLocked(), mostMS)
	s.order.stampMS = s.active.Load().lastMS
}

// dropDrained drops the generations that later records mark as drained.
func (s *Spool) dropDrained() {
	for _, g := range s.frozenLocked() {
		if g.number <= s.drainedNumber.Load() {
			s.dropOldest(g)
		}
	}
}
