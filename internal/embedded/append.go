package embedded

import (
	"context"
	"fmt"

	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/writelog"
)

// Append implements store.Appender.
func (s *Store) Append(ctx context.Context, b *store.Batch) error {
	if err := s.log.CheckOpen(ctx); err != nil {
		return err
	}
	if len(b.Samples) == 0 {
		return nil
	}
	if err := s.waitForRoom(ctx); err != nil {
		return err
	}
	late := s.arrivesLate(b)
	err := s.log.Append(ctx, b, func(e *writelog.Encoder) (writelog.Entry, error) {
		s.order.late = s.order.late || late
		return s.apply(e, b), nil
	})
	if err != nil {
		return err
	}
	s.metrics.samples.Add(float64(len(b.Samples)))
	s.metrics.batches.Inc()
	return nil
}

// waitForRoom delays writers while the head is full, and refuses them if it cannot be emptied.
func (s *Store) waitForRoom(ctx context.Context) error {
	if err := s.log.Writable(); err != nil {
		return err
	}
	return s.waitWhileFull(ctx)
}

// waitWhileFull is waitForRoom for operations that are allowed on a full disk.
func (s *Store) waitWhileFull(ctx context.Context) error {
	if s.buffered() < s.headMost() {
		return nil
	}
	s.metrics.stalls.Inc()
	err := s.room.Wait(ctx, func() bool {
		return s.log.Closed() || s.checkpointFailed.Load() != nil || s.buffered() < s.headMost()
	})
	switch e := s.checkpointFailed.Load(); {
	case err != nil:
		return fmt.Errorf("wait for room in the head (%s): %w", s.section.Key("head_bytes_max"), err)
	case s.log.Closed():
		return store.ErrClosed
	case e != nil:
		return &store.UnavailableError{Reason: "the head is full (" + s.section.Key("head_bytes_max") + ") and cannot be written to files", Err: *e}
	}
	return nil
}

// buffered is the size of the samples that are only in memory, and of the keys of
// series that are not in the catalogue: both are in the log meanwhile. Byte strings and
// samples that arrived out of order count with their full length.
func (s *Store) buffered() int64 {
	return s.active.Load().Expanded() + s.definedBytes.Load() + s.frozenBytes.Load()
}

// means returns the memory and disk space available for recent samples.
func (s *Store) means() means { return means{s.memory, s.diskRoom.Load()} }

// headMost is the size of samples in memory at which writers wait.
func (s *Store) headMost() int64 {
	return int64(s.cfg.headBytesMax(max(s.active.Load().Records(), s.frozenRecords.Load()), s.means()))
}

// newHead returns an empty head.
func (s *Store) newHead() *head.Head { return head.New(int64(s.cfg.headBytes(0, s.means()))) }

// apply logs and applies a batch. The order lock must be held.
func (s *Store) apply(e *writelog.Encoder, b *store.Batch) writelog.Entry {
	e.Define = s.series.Introduce(e.Define[:0], b.Samples)
	logged, _ := s.log.AppendBatch(record.TypeBatch, nil, e.Define, e.Samples)
	s.defineLater(e.Define...)
	for _, d := range e.Define {
		if series, err := model.ParseKey(d.Key); err == nil { // checked by Create
			s.index.Add(d.ID, series)
			s.growth.Add(s.now(), series.Metric)
		}
	}
	if erasing := s.order.erasing; erasing != nil {
		erasing.before(s.active.Load(), b.Samples)
	}
	s.active.Load().Append(b, e.Kinds)
	s.askIfLarge()
	return logged
}

// defineLater records series that the next checkpoint must write to the
// catalogue. The order lock must be held.
func (s *Store) defineLater(defs ...record.Definition) {
	s.order.define = append(s.order.define, defs...)
	for _, d := range defs {
		s.definedBytes.Add(int64(len(d.Key)))
	}
}

// askIfLarge requests a checkpoint if the active head is large enough.
func (s *Store) askIfLarge() {
	if h := s.active.Load(); h.Expanded()+s.definedBytes.Load() > int64(s.cfg.headBytes(h.Records(), s.means())) || h.Samples() > s.cfg.CheckpointSamples {
		s.askCheckpoint()
	}
}

// askCheckpoint wakes the checkpointer unless it is about to run anyway.
func (s *Store) askCheckpoint() { notify.Wake(s.full) }
