package spool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
)

// replayer rebuilds generations from the log.
type replayer struct {
	spool *Spool
	batch store.Batch
	kinds []model.Kind

	// renamed are the series that log records give another id than they have
	// here: they were forgotten, and known again, while old records were still
	// there.
	renamed map[uint32]uint32
}

// replay brings what the log holds into generations.
func (s *Spool) replay() error {
	began := time.Now()
	from, err := s.findFrom()
	if err != nil {
		return err
	}
	s.order.from = from
	r := &replayer{spool: s, renamed: make(map[uint32]uint32)}
	stats, err := wal.Replay(s.fs, s.path(logName), wal.ReplayOptions{From: from, OnDamage: s.options.OnDamage}, r.record)
	if err != nil {
		return fmt.Errorf("replay the write-ahead log of the spool: %w", err)
	}
	s.series.Settle()
	s.dropDrained()
	if g := s.active.Load(); g.Samples() > 0 {
		g.began.Store(&began)
	}
	if stats.Records > 0 {
		h := s.Health()
		s.logger.Info("replayed the write-ahead log of the spool", "records", stats.Records, "bytes", stats.Bytes, "samples", h.Samples,
			"generations", h.Generations, "cut_bytes", stats.CutBytes, "damages", stats.Damages, "took", time.Since(began))
	}
	return nil
}

// findFrom returns the segment at which the newest mark says that the replay
// begins; without a mark the first one, 0 if there is none. What is before may be
// there in part.
func (s *Spool) findFrom() (wal.Segment, error) {
	path := s.path(logName)
	segments, err := wal.Segments(s.fs, path)
	if err != nil {
		return 0, err
	}
	skip := func(*store.CorruptionError) bool { return true } // the replay tells of damage
	for _, segment := range slices.Backward(segments) {
		var from wal.Segment
		_, err := wal.Replay(s.fs, path, wal.ReplayOptions{From: segment, To: segment, OnDamage: skip}, func(segment wal.Segment, typ byte, payload []byte) error {
			if typ != typeCut && typ != typeFloor {
				return nil
			}
			m, err := parseMark(segment, payload)
			from = max(from, m.from)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("find the begin of the write-ahead log of the spool: %w", err)
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
	s.active.Load().logBytes.Add(int64(len(payload)) + recordOverhead)
	s.logBytes.Add(int64(len(payload)) + recordOverhead)
	switch typ {
	case record.TypeBatch:
		return r.apply(payload)
	case typeCut, typeFloor:
		m, err := parseMark(segment, payload)
		if err != nil {
			return err
		}
		s.order.floorMS = max(s.order.floorMS, m.floorMS)
		s.drainedMS.Store(max(s.drainedMS.Load(), m.drainedMS))
		s.order.from = max(s.order.from, m.from)
		if typ == typeCut {
			return r.cut(segment, m)
		}
		return nil
	}
	return fmt.Errorf("log record of unknown type %d: use a newer build", typ)
}

func (r *replayer) apply(payload []byte) error {
	s, g := r.spool, r.spool.active.Load()
	rest, err := record.Definitions(payload, func(d record.Definition) error { return r.define(g, d) })
	if err != nil {
		return err
	}
	r.batch.Reset(s.Epoch())
	if err := r.samples(rest); err != nil {
		return err
	}
	var ok bool
	if r.kinds, ok = s.series.Kinds(r.kinds[:0], r.batch.Samples); !ok {
		return fmt.Errorf("sample of an unknown series")
	}
	g.place.Load().head.Append(&r.batch, r.kinds)
	return nil
}

// define makes a series known under the id that the log gives it, or under the
// one that it has already.
func (r *replayer) define(g *Generation, d record.Definition) error {
	if _, err := model.ParseKey(d.Key); err != nil {
		return err
	}
	s := r.spool
	known, ok := s.series.Lookup([]byte(d.Key))
	switch key := s.series.Key(d.ID); {
	case ok && known != d.ID:
		r.renamed[d.ID] = known
		s.series.Expect(d.ID + 1)
		return nil
	case key != "" && key != d.Key:
		return fmt.Errorf("id %d is given to series %q, but is that of %q", d.ID, d.Key, key)
	}
	s.series.Restore(d)
	g.defined.add(d.ID)
	if !s.order.indexed.has(d.ID) {
		s.addToIndex(d.ID, d.Key)
	}
	return nil
}

// samples decodes the samples of a batch record.
func (r *replayer) samples(payload []byte) error {
	series := r.spool.series
	if len(r.renamed) == 0 {
		return series.DecodeSamples(payload, &r.batch)
	}
	live := func(id uint32) uint32 {
		if other, ok := r.renamed[id]; ok {
			return other
		}
		return id
	}
	err := record.Samples(payload, func(id uint32) model.Kind { return series.Kind(live(id)) }, &r.batch)
	for i := range r.batch.Samples {
		r.batch.Samples[i].Ref = store.Ref(live(uint32(r.batch.Samples[i].Ref)))
	}
	return err
}

// cut ends a generation, as cutLocked did.
func (r *replayer) cut(segment wal.Segment, m mark) error {
	s, g := r.spool, r.spool.active.Load()
	if g.Samples() == 0 { // damage took what was in it
		return nil
	}
	began := time.UnixMilli(m.beganMS)
	g.began.Store(&began)
	g.end = segment
	s.freeze(g, m.stampMS)
	next := newGeneration(s.series, 0)
	s.frozen = append(s.frozen, g)
	s.held = append(s.held, next)
	s.active.Store(next)
	return s.spillAll(context.Background())
}

// dropDrained drops what later records say was drained.
func (s *Spool) dropDrained() {
	for len(s.frozen) > 0 && s.frozen[0].StampMS() <= s.drainedMS.Load() {
		g := s.frozen[0]
		s.idle.drop(g)
		s.frozen = s.frozen[1:]
		s.frozenMem.Add(-g.memory())
		s.logBytes.Add(-g.Bytes())
		s.release(g)
	}
}
