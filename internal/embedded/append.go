package embedded

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/registry"
	"varve/internal/store"
	"varve/internal/wal"
)

// encoder is the scratch memory of one Append.
type encoder struct {
	kinds   []model.Kind
	samples []byte
	define  []record.Definition
}

// MaxBatchBytes bounds what one Append may log. Ingest sends less.
const MaxBatchBytes = 16 << 20

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
	e := s.encoders.Get().(*encoder)
	defer s.encoders.Put(e)
	for i := range b.Samples {
		if ttl := b.Samples[i].TTL; ttl > model.MaxTTL {
			return &store.InputError{Reason: fmt.Sprintf("time-to-live of %d s is above the largest of %d s", ttl, model.MaxTTL)}
		}
	}
	if !e.encode(s.series, b) {
		return store.ErrStale
	}
	if len(e.samples) > MaxBatchBytes {
		return &store.LimitError{Limit: "bytes of a batch", Max: MaxBatchBytes, Need: int64(len(e.samples)), What: "append"}
	}
	if err := s.wal.Load().Reserve(ctx, len(e.samples)); err != nil {
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

// encode prepares the log record of b's samples. It reports false when a ref
// is stale.
func (e *encoder) encode(series *registry.Registry, b *store.Batch) bool {
	if series.Epoch() != b.Epoch {
		return false
	}
	var ok bool
	if e.kinds, ok = series.Kinds(e.kinds[:0], b.Samples); !ok {
		return false
	}
	e.samples = record.AppendSamples(e.samples[:0], b, e.kinds)
	return true
}

// entry is a record in a log, which is not the store's for ever: see reopenLog.
type entry struct {
	log    *wal.Log
	ticket wal.Ticket
}

func (e entry) wait(ctx context.Context) error { return e.log.Wait(ctx, e.ticket) }

// logError turns an error of the log into the caller's. A log that failed for
// want of space is opened anew when there is some; any other failure is final,
// since nobody knows what is on disk.
func (s *Store) logError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the write-ahead log: %w", err)
	}
	if vfs.IsNoSpaceError(err) {
		// Not s.writable(): when there is space again by now, this batch is not
		// in the log all the same.
		return s.block("the disk is full", err)
	}
	s.fail("the write-ahead log failed", err)
	return s.failure.Load()
}

// waitForRoom holds writers back while the head is full, and refuses them when
// it can not be emptied.
func (s *Store) waitForRoom(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	if s.buffered() < int64(s.cfg.HeadBytesMax) {
		return nil
	}
	s.metrics.stalls.Inc()
	err := s.room.wait(ctx, func() bool {
		return s.closed.Load() || s.checkpointFailed.Load() != nil || s.buffered() < int64(s.cfg.HeadBytesMax)
	})
	switch e := s.checkpointFailed.Load(); {
	case err != nil:
		return fmt.Errorf("wait for room in the head (head_bytes_max): %w", err)
	case s.closed.Load():
		return store.ErrClosed
	case e != nil:
		return &store.UnavailableError{Reason: "the head is full (head_bytes_max) and can not be written to files", Err: *e}
	}
	return nil
}

// buffered is the size of the samples that are in memory only.
func (s *Store) buffered() int64 { return s.active.Load().Bytes() + s.frozenBytes.Load() }

// apply logs and applies a batch. Under the order lock there is no I/O and no
// waiting: Reserve has made room in the log's buffer.
func (s *Store) apply(e *encoder, b *store.Batch) (entry, error) {
	s.order.Lock()
	defer s.order.Unlock()
	if s.series.Epoch() != b.Epoch {
		return entry{}, store.ErrStale
	}
	e.define = s.series.Introduce(e.define[:0], b.Samples)
	s.order.definitions = record.AppendDefinitions(s.order.definitions[:0], e.define)
	log := s.wal.Load()
	logged := entry{log, log.Append(record.TypeBatch, s.order.definitions, e.samples)}
	s.order.define = append(s.order.define, e.define...)
	for _, d := range e.define {
		if series, err := model.ParseKey(d.Key); err == nil { // checked by Create
			s.index.Add(d.ID, series)
			s.growth.add(s.now(), series.Metric)
		}
	}
	s.active.Load().Append(b, e.kinds)
	if h := s.active.Load(); h.Bytes() > int64(s.cfg.HeadBytes) || h.Samples() > s.cfg.CheckpointSamples {
		s.askCheckpoint()
	}
	return logged, nil
}

// askCheckpoint wakes the checkpointer unless it is about to run anyway.
func (s *Store) askCheckpoint() {
	select {
	case s.full <- struct{}{}:
	default:
	}
}
