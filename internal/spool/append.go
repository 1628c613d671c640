package spool

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// Create implements store.Appender. It returns a *store.UnavailableError while the spool is full:
// clients that send new series all the time would otherwise fill the memory with series whose samples
// are refused.
func (s *Spool) Create(ctx context.Context, series model.Series) (store.Ref, error) {
	// A single large batch can be refused while there is much room for others.
	if s.overfull.Load() && s.full(int64(s.cfg.MaxBytes)/16) {
		s.metrics.refusedBytes.Inc()
		return 0, s.fullError()
	}
	return s.refs.Create(ctx, series)
}

// Append implements store.Appender. It returns a *store.UnavailableError if a bound is
// reached or the disk fails.
func (s *Spool) Append(ctx context.Context, b *store.Batch) error {
	if err := s.log.CheckOpen(ctx); err != nil {
		return err
	}
	if len(b.Samples) == 0 {
		return nil
	}
	if err := s.waitForRoom(ctx); err != nil {
		return err
	}
	var in *Generation
	err := s.log.Append(ctx, b, func(e *writelog.Encoder) (logged writelog.Entry, err error) {
		logged, in, err = s.apply(e, b)
		return logged, err
	})
	if err != nil {
		return err
	}
	if s.cfg.Acknowledge == AcknowledgeStore {
		if err := s.waitForStore(ctx, in, b); err != nil {
			return err
		}
	}
	s.metrics.samples.Add(float64(len(b.Samples)))
	s.metrics.batches.Inc()
	return nil
}

// apply logs and applies a batch. The order lock must be held.
func (s *Spool) apply(e *writelog.Encoder, b *store.Batch) (writelog.Entry, *Generation, error) {
	if s.full(int64(len(e.Samples))) {
		s.metrics.refusedBytes.Inc()
		s.overfull.Store(true)
		return writelog.Entry{}, nil, s.fullError()
	}
	stampMS := s.stampLocked()
	g := s.active.Load()
	s.tellOfFirst(b)
	s.define(g, e, b)
	logged := s.logBatch(g, stampMS, e)
	h := g.place.Load().head
	first := h.Samples() == 0
	g.append(b, e.Kinds, stampMS)
	if first {
		now := time.Now()
		g.began.Store(&now)
		notify.Wake(s.pokeKeeper)
	}
	if s.large(g) {
		s.cutLocked() // an error comes from the log, so the caller's own append reports it too
	}
	return logged, g, nil
}

// large reports whether the active generation has to end because of its size.
func (s *Spool) large(g *Generation) bool {
	return g.memory() >= int64(s.cfg.generationBytes()) || g.Samples() >= s.cfg.GenerationSamples
}

// tellOfFirst calls Options.First for the series of a batch that get their first sample since they were
// created. The order lock must be held.
func (s *Spool) tellOfFirst(b *store.Batch) {
	if s.options.First == nil {
		return
	}
	for _, d := range s.series.Introduce(nil, b.Samples) {
		s.options.First(model.TrustKey(d.Key).Metric) // checked by Create
	}
}

// logBatch appends a batch of g and the series that it introduces to the log. The
// order lock must be held.
func (s *Spool) logBatch(g *Generation, stampMS int64, e *writelog.Encoder) writelog.Entry {
	var stamp [stampSize]byte
	binary.LittleEndian.PutUint64(stamp[:], uint64(stampMS))
	logged, bytes := s.log.AppendBatch(typeBatch, stamp[:], e.Define, e.Samples)
	s.logged(g, bytes)
	return logged
}

// define collects the series of b that no log record of g has introduced yet. The order lock
// must be held.
func (s *Spool) define(g *Generation, e *writelog.Encoder, b *store.Batch) {
	e.Define = e.Define[:0]
	for i := range b.Samples {
		id := model.SeriesNumber(b.Samples[i].Ref)
		if !g.defined.add(id) {
			continue
		}
		key := s.series.Key(id)
		e.Define = append(e.Define, record.Definition{ID: id, Key: key})
		if !s.order.indexed.has(id) {
			s.addToIndex(id, key)
		}
	}
}

// addToIndex makes a series findable. The order lock must be held.
func (s *Spool) addToIndex(id model.SeriesNumber, key string) {
	series, err := model.ParseKey(key)
	if err != nil { // checked by Create
		return
	}
	s.index.Add(id, series)
	s.order.indexed.add(id)
}

// logged counts bytes of log records. The order lock must be held.
func (s *Spool) logged(g *Generation, n int64) {
	g.logBytes.Add(n)
	s.logBytes.Add(n)
	s.order.sinceRotate += n
}

// full reports whether the given bytes of log would exceed max_bytes.
func (s *Spool) full(more int64) bool {
	s.mu.Lock()
	files := s.spillTotal
	s.mu.Unlock()
	return s.logBytes.Load()+files+more+wal.RecordOverhead > int64(s.cfg.MaxBytes)
}

func (s *Spool) fullError() error {
	return s.refusal(fmt.Sprintf("the spool is full: %s of %v is reached", s.options.Section.Key("max_bytes"), s.cfg.MaxBytes))
}

// refusal says why the spool refuses samples, and why the sink does not make room.
func (s *Spool) refusal(reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sinkErr != nil:
		return &store.UnavailableError{Reason: fmt.Sprintf("%s; the remote store has accepted nothing since %s", reason, s.sinkSince.UTC().Format(time.RFC3339)), Err: s.sinkErr}
	case s.sink == nil:
		return &store.UnavailableError{Reason: reason + "; the remote store has not been reached yet"}
	}
	return &store.UnavailableError{Reason: reason + "; the remote store is slower than the input"}
}

// waitForRoom makes writers wait while the heads are full, and refuses them if the heads cannot
// be emptied.
func (s *Spool) waitForRoom(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	if s.memory() < int64(s.cfg.MaxMemory) {
		return nil
	}
	s.metrics.stalls.Inc()
	err := s.room.Wait(ctx, func() bool {
		return s.log.Closed() || s.spillError() != nil || s.memory() < int64(s.cfg.MaxMemory)
	})
	switch spillErr := s.spillError(); {
	case err != nil:
		return fmt.Errorf("wait for room in memory (%s): %w", s.options.Section.Key("max_memory"), err)
	case s.log.Closed():
		return store.ErrClosed
	case spillErr != nil && s.memory() >= int64(s.cfg.MaxMemory):
		s.metrics.refusedMemory.Inc()
		return s.refusal(fmt.Sprintf("%s of %v is reached and samples cannot be written to files (%v)", s.options.Section.Key("max_memory"), s.cfg.MaxMemory, spillErr))
	}
	return nil
}

// memory is the size in bytes of the samples in memory. A generation that ends meanwhile may be
// missing, but never counts twice: a writer that waited because of that would not be woken.
func (s *Spool) memory() int64 {
	frozen := s.frozenMem.Load()
	return frozen + s.active.Load().memory()
}

// waitForStore returns when the remote store has a batch of g. It does not wait for samples of
// other batches that the remote store could not write.
func (s *Spool) waitForStore(ctx context.Context, g *Generation, b *store.Batch) error {
	timer := time.NewTimer(s.cfg.AcknowledgeTimeout)
	defer timer.Stop()
	for {
		offers := s.offers.Next()
		stored, passable := s.stored(g, b)
		if stored {
			return nil
		}
		if passable {
			notify.Wake(s.pokeRetry) // the next round offers later generations too
		}
		select {
		case <-offers:
		case <-ctx.Done():
			return fmt.Errorf("wait for the remote store; the samples may arrive later: %w", ctx.Err())
		case <-s.ctx.Done():
			return store.ErrClosed
		case <-timer.C:
			s.metrics.refusedStore.Inc()
			return s.refusal(fmt.Sprintf("%s is store, and the remote store has not confirmed the samples within %v; they may arrive later", s.options.Section.Key("acknowledge"), s.cfg.AcknowledgeTimeout))
		}
	}
}

// stored reports whether the remote store has a batch of g. If it does not, passable reports
// whether g was not offered yet but can be, although an earlier generation is only partly
// written.
func (s *Spool) stored(g *Generation, b *store.Batch) (stored, passable bool) {
	s.mu.Lock()
	stored, left, passable := g.state >= written, g.left, IsPartial(s.sinkErr)
	s.mu.Unlock()
	if stored || left == nil {
		return stored, passable
	}
	return !slices.ContainsFunc(b.Samples, func(sample store.Sample) bool { return left.Contains(uint32(sample.Ref)) }), false
}

// Refuse makes the spool refuse all writes, for an external reason, until Admit is called.
func (s *Spool) Refuse(err error) {
	if s.refused.Swap(&store.UnavailableError{Reason: "samples are refused", Err: err}) == nil {
		s.logger.Error("samples are refused", "error", err)
	}
}

// Admit undoes Refuse. It reports whether writes were refused.
func (s *Spool) Admit() bool { return s.refused.Swap(nil) != nil }

// writable returns why writes are refused, nil if they are accepted.
func (s *Spool) writable() error {
	if err := s.log.Writable(); err != nil {
		return err
	}
	if e := s.refused.Load(); e != nil {
		return e
	}
	return nil
}
