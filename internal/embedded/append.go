package embedded

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/registry"
	"varve/internal/store"
	"varve/internal/wal"
)

// Append implements store.Appender.
func (s *Store) Append(ctx context.Context, b *store.Batch) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	if len(b.Samples) == 0 {
		return nil
	}
	if err := s.waitForRoom(ctx); err != nil {
		return err
	}
	e := s.encoders.Get().(*registry.Encoder)
	defer s.encoders.Put(e)
	if err := e.Encode(s.series, b); err != nil {
		return err
	}
	if err := s.wal.Load().Reserve(ctx, len(e.Samples)); err != nil {
		return s.logError(ctx, err)
	}
	entry, err := s.apply(e, b)
	if err != nil {
		return err
	}
	if err := entry.wait(ctx); err != nil {
		return s.logError(ctx, err)
	}
	s.metrics.samples.Add(float64(len(b.Samples)))
	s.metrics.batches.Inc()
	return nil
}

// entry is a record in a log, which is not the store's for ever: see reopenLog.
type entry struct {
	log    *wal.Log
	ticket wal.Ticket
}

func (e entry) wait(ctx context.Context) error { return e.log.Wait(ctx, e.ticket) }

// logError turns an error of the log into the caller's. A record that the log
// refuses is the caller's fault. A log that failed for lack of space is replaced
// when there is space. Any other failure is final: what is on disk is unknown.
func (s *Store) logError(ctx context.Context, err error) error {
	var input *store.InputError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for the write-ahead log: %w", err)
	case errors.As(err, &input):
		return err
	case s.closed.Load() || errors.Is(err, store.ErrClosed):
		return store.ErrClosed
	case wal.NoSpace(err):
		// Not s.writable(): when there is space again by now, this batch is not
		// in the log all the same.
		return s.disk.Block(err)
	}
	s.fail("the write-ahead log failed", wal.Cause(err))
	return s.failure.Load()
}

// waitForRoom holds writers back while the head is full, and refuses them when
// it cannot be emptied.
func (s *Store) waitForRoom(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	return s.waitWhileFull(ctx)
}

// waitWhileFull is waitForRoom for operations that are allowed on a full disk.
func (s *Store) waitWhileFull(ctx context.Context) error {
	if s.buffered() < int64(s.cfg.HeadBytesMax) {
		return nil
	}
	s.metrics.stalls.Inc()
	err := s.room.Wait(ctx, func() bool {
		return s.closed.Load() || s.checkpointFailed.Load() != nil || s.buffered() < int64(s.cfg.HeadBytesMax)
	})
	switch e := s.checkpointFailed.Load(); {
	case err != nil:
		return fmt.Errorf("wait for room in the head (head_bytes_max): %w", err)
	case s.closed.Load():
		return store.ErrClosed
	case e != nil:
		return &store.UnavailableError{Reason: "the head is full (head_bytes_max) and cannot be written to files", Err: *e}
	}
	return nil
}

// buffered is the size of the samples that are only in memory, and of the keys of
// series that are not in the catalogue: both are in the log meanwhile. Byte strings
// count with their full length.
func (s *Store) buffered() int64 {
	return s.active.Load().Expanded() + s.definedBytes.Load() + s.frozenBytes.Load()
}

// apply logs and applies a batch. Under the order lock there is no I/O and no
// waiting: Reserve has made room in the log's buffer.
func (s *Store) apply(e *registry.Encoder, b *store.Batch) (entry, error) {
	s.order.Lock()
	defer s.order.Unlock()
	if !e.Current(s.series, b) {
		return entry{}, store.ErrStale
	}
	e.Define = s.series.Introduce(e.Define[:0], b.Samples)
	logged := s.logBatch(s.wal.Load(), e.Define, e.Samples)
	s.defineLater(e.Define...)
	for _, d := range e.Define {
		if series, err := model.ParseKey(d.Key); err == nil { // checked by Create
			s.index.Add(d.ID, series)
			s.growth.add(s.now(), series.Metric)
		}
	}
	if erasing := s.order.erasing; erasing != nil {
		erasing.before(s.active.Load(), b.Samples)
	}
	clear(e.Define) // the keys
	s.active.Load().Append(b, e.Kinds)
	s.askIfLarge()
	return logged, nil
}

// noSamples is the second part of a batch record that only introduces series.
var noSamples = record.AppendSamples(nil, &store.Batch{}, nil)

// logBatch appends a batch and the series that it introduces to a log. The order lock
// must be held.
func (s *Store) logBatch(log *wal.Log, define []record.Definition, samples []byte) entry {
	for {
		n := record.Fit(define)
		s.order.definitions = record.AppendDefinitions(s.order.definitions[:0], define[:n])
		if define = define[n:]; len(define) == 0 {
			return entry{log, log.Append(record.TypeBatch, s.order.definitions, samples)}
		}
		log.Append(record.TypeBatch, s.order.definitions, noSamples)
	}
}

// defineLater notes series for the next checkpoint. The order lock must be held.
func (s *Store) defineLater(defs ...record.Definition) {
	s.order.define = append(s.order.define, defs...)
	for _, d := range defs {
		s.definedBytes.Add(int64(len(d.Key)))
	}
}

// askIfLarge asks for a checkpoint if the active head is large enough.
func (s *Store) askIfLarge() {
	if h := s.active.Load(); h.Expanded()+s.definedBytes.Load() > int64(s.cfg.HeadBytes) || h.Samples() > s.cfg.CheckpointSamples {
		s.askCheckpoint()
	}
}

// askCheckpoint wakes the checkpointer unless it is about to run anyway.
func (s *Store) askCheckpoint() {
	select {
	case s.full <- struct{}{}:
	default:
	}
}
