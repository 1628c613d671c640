package spool

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/registry"
	"varve/internal/store"
)

// Append implements store.Appender. Errors are, beside those of the contract, a
// *store.UnavailableError when a bound is reached or the disk fails.
func (s *Spool) Append(ctx context.Context, b *store.Batch) error {
	if err := s.check(ctx); err != nil {
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
	if s.options.Check != nil {
		if err := s.options.Check(b, e.Kinds); err != nil {
			return err
		}
	}
	if err := s.log.Load().Reserve(ctx, len(e.Samples)); err != nil {
		return s.logError(ctx, err)
	}
	logged, g, err := s.apply(e, b)
	if err != nil {
		return err
	}
	if err := logged.wait(ctx); err != nil {
		return s.logError(ctx, err)
	}
	if s.cfg.Acknowledge == AcknowledgeStore {
		if err := s.waitForStore(ctx, g); err != nil {
			return err
		}
	}
	s.metrics.samples.Add(float64(len(b.Samples)))
	s.metrics.batches.Inc()
	return nil
}

// recordOverhead is what the log adds to a record.
const recordOverhead = 15

// apply logs and applies a batch. Under the order lock there is no I/O and no
// waiting: Reserve has made room in the log's buffer.
func (s *Spool) apply(e *registry.Encoder, b *store.Batch) (entry, *Generation, error) {
	s.order.Lock()
	defer s.order.Unlock()
	if !e.Current(s.series, b) {
		return entry{}, nil, store.ErrStale
	}
	if s.full(int64(len(e.Samples))) {
		s.metrics.refusedBytes.Inc()
		s.overfull.Store(true)
		return entry{}, nil, s.fullError()
	}
	stampMS := s.stampLocked()
	g := s.active.Load()
	s.define(g, e, b)
	logged := s.logBatch(g, stampMS, e.Define, e.Samples)
	clear(e.Define) // the keys
	h := g.place.Load().head
	first := h.Samples() == 0
	g.append(b, e.Kinds, stampMS)
	if first {
		now := time.Now()
		g.began.Store(&now)
		poke(s.pokeKeeper)
	}
	if h.Bytes() >= int64(s.cfg.GenerationBytes) || h.Samples() >= s.cfg.GenerationSamples {
		s.cutLocked() // an error is the log's, which the caller meets too
	}
	return logged, g, nil
}

// noSamples is the second part of a batch record that only introduces series.
var noSamples = record.AppendSamples(nil, &store.Batch{}, nil)

// logBatch appends a batch of g and the series that it introduces to the log. The
// order lock must be held.
func (s *Spool) logBatch(g *Generation, stampMS int64, define []record.Definition, samples []byte) entry {
	log := s.log.Load()
	for {
		n := record.Fit(define)
		s.order.definitions = binary.LittleEndian.AppendUint64(s.order.definitions[:0], uint64(stampMS))
		s.order.definitions = record.AppendDefinitions(s.order.definitions, define[:n])
		define = define[n:]
		part := samples
		if len(define) > 0 {
			part = noSamples
		}
		ticket := log.Append(typeBatch, s.order.definitions, part)
		s.logged(g, len(s.order.definitions)+len(part))
		if len(define) == 0 {
			return entry{log, ticket}
		}
	}
}

// define collects the series that g's log records have not introduced yet. The
// order lock must be held.
func (s *Spool) define(g *Generation, e *registry.Encoder, b *store.Batch) {
	e.Define = e.Define[:0]
	for i := range b.Samples {
		id := uint32(b.Samples[i].Ref)
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
func (s *Spool) addToIndex(id uint32, key string) {
	series, err := model.ParseKey(key)
	if err != nil { // checked by Create
		return
	}
	s.index.Add(id, series)
	s.order.indexed.add(id)
}

// logged counts a record's bytes. The order lock must be held.
func (s *Spool) logged(g *Generation, payload int) {
	n := int64(payload) + recordOverhead
	g.logBytes.Add(n)
	s.logBytes.Add(n)
	s.order.sinceRotate += n
}

// full reports whether more bytes of log do not fit max_bytes.
func (s *Spool) full(more int64) bool {
	s.mu.Lock()
	files := s.spillTotal
	s.mu.Unlock()
	return s.logBytes.Load()+files+more+recordOverhead > int64(s.cfg.MaxBytes)
}

func (s *Spool) fullError() error {
	return s.refusal(fmt.Sprintf("the spool is full: spool.max_bytes of %v is reached", s.cfg.MaxBytes))
}

// refusal says why samples are not taken, and why the sink does not make room.
func (s *Spool) refusal(reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sinkErr != nil:
		return &store.UnavailableError{Reason: fmt.Sprintf("%s; the remote store takes nothing since %s", reason, s.sinkSince.UTC().Format(time.RFC3339)), Err: s.sinkErr}
	case s.sink == nil:
		return &store.UnavailableError{Reason: reason + "; the remote store was not reached yet"}
	}
	return &store.UnavailableError{Reason: reason + "; the remote store is slower than what comes in"}
}

// waitForRoom holds writers back while the heads are full, and refuses them when
// they cannot be emptied.
func (s *Spool) waitForRoom(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	if s.memory() < int64(s.cfg.MaxMemory) {
		return nil
	}
	s.metrics.stalls.Inc()
	err := s.room.Wait(ctx, func() bool {
		return s.closed.Load() || s.spillError() != nil || s.memory() < int64(s.cfg.MaxMemory)
	})
	switch spillErr := s.spillError(); {
	case err != nil:
		return fmt.Errorf("wait for room in memory (spool.max_memory): %w", err)
	case s.closed.Load():
		return store.ErrClosed
	case spillErr != nil && s.memory() >= int64(s.cfg.MaxMemory):
		s.metrics.refusedMemory.Inc()
		return s.refusal(fmt.Sprintf("spool.max_memory of %v is reached and samples cannot be written to files (%v)", s.cfg.MaxMemory, spillErr))
	}
	return nil
}

// memory is the size of the samples that are in memory.
func (s *Spool) memory() int64 { return s.active.Load().memory() + s.frozenMem.Load() }

// waitForStore returns when g is in the remote store.
func (s *Spool) waitForStore(ctx context.Context, g *Generation) error {
	timer := time.NewTimer(s.cfg.AcknowledgeTimeout)
	defer timer.Stop()
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the remote store; the samples may arrive later: %w", ctx.Err())
	case <-s.ctx.Done():
		return store.ErrClosed
	case <-timer.C:
	}
	s.metrics.refusedStore.Inc()
	return s.refusal(fmt.Sprintf("the remote store has not confirmed the samples within spool.acknowledge_timeout of %v; they may arrive later", s.cfg.AcknowledgeTimeout))
}

// writable returns why the spool takes no writes, nil if it does.
func (s *Spool) writable() error {
	if e := s.failure.Load(); e != nil {
		return e
	}
	return s.disk.Err()
}

// Refuse makes the spool take no more writes until it is opened again.
func (s *Spool) Refuse(err error) { s.fail("samples are refused", err) }

// fail makes the spool refuse writes from here on, with the error it returns.
func (s *Spool) fail(reason string, err error) error {
	e := &store.UnavailableError{Reason: reason + "; the spool takes no more writes until it is opened again", Err: err}
	if s.failure.CompareAndSwap(nil, e) {
		s.logger.Error(reason, "error", err)
	}
	return e
}
