package spool

import (
	"context"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/store"
	"varve/internal/wal"
)

// Flush waits until all samples that were appended before the call are in the remote
// store, and no restart will drain them again. If metrics are given, it waits for the
// samples of these metrics only. The returned stamp is above those of all these samples,
// and below those of all samples that are appended after Flush has returned. Flush
// returns the error of ctx or of the log, or store.ErrClosed.
//
// While the sink is busy, the active generation is not cut but marked as wanted, and
// all flushes share it. If the sink cannot write some samples, later generations are
// flushed before them.
func (s *Spool) Flush(ctx context.Context, metrics ...string) (stampMS int64, err error) {
	if err := s.log.CheckOpen(ctx); err != nil {
		return 0, err
	}
	wanted, err := s.seriesOf(ctx, metrics)
	if err != nil {
		return 0, err
	}
	active := s.active.Load()
	cut := wanted.in(pending{Generation: active})
	last, stampMS, err := s.beginFlush(active, cut)
	if err != nil {
		return 0, s.log.Error(ctx, err)
	}
	if last != nil {
		if !s.flushed(last, wanted) {
			notify.Wake(s.pokeKeeper)
			notify.Wake(s.pokeRetry)
		}
		if err := s.waitWritten(ctx, last, wanted); err != nil {
			return 0, err
		}
		if stampMS == 0 {
			stampMS = last.StampMS() + 1 // the lowest stamp that its cut can get
		}
	}
	s.order.Lock()
	logged := s.logFloorLocked()
	s.order.Unlock()
	if err := logged.Wait(ctx); err != nil {
		return 0, s.log.Error(ctx, err)
	}
	return stampMS, nil
}

// wantedSeries are the series that a flush waits for; all if ids is nil.
type wantedSeries struct{ ids *roaring.Bitmap }

// seriesOf returns the series of the given metrics.
func (s *Spool) seriesOf(ctx context.Context, metrics []string) (f wantedSeries, err error) {
	if len(metrics) == 0 {
		return f, nil
	}
	f.ids = roaring.New()
	for _, metric := range metrics {
		ids, err := s.index.Select(ctx, metric, nil, nil)
		if err != nil {
			return f, err
		}
		f.ids.Or(ids)
	}
	return f, nil
}

// in reports whether a generation has unwritten samples of these series.
func (f wantedSeries) in(p pending) bool {
	if f.ids == nil {
		return true
	}
	ids := f.ids
	if p.left != nil {
		ids = roaring.And(ids, p.left)
	}
	for it := ids.Iterator(); it.HasNext(); {
		if p.has(model.SeriesNumber(it.Next()), model.AllTime) {
			return true
		}
	}
	return false
}

// beginFlush returns the last generation that the flush waits for, nil if there is none, and
// the stamp of the flush, which is 0 if the stamp will be the one after that generation's. If
// cut is set and active is still the active generation, beginFlush cuts it.
func (s *Spool) beginFlush(active *Generation, cut bool) (last *Generation, stampMS int64, err error) {
	s.order.Lock()
	defer s.order.Unlock()
	s.followClockLocked()
	if g := s.active.Load(); g == active && cut && g.Samples() > 0 {
		if n, passable := s.queued(); !passable || n >= maxFlushed {
			s.hurried.Store(true)
			return g, 0, nil
		}
		return g, 0, s.cutLocked()
	}
	s.order.floorMS = s.nextStampLocked()
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := s.frozenLocked(); len(all) > 0 {
		last = all[len(all)-1]
	}
	return last, s.order.floorMS, nil
}

// flushed reports whether the remote store has the series in f of all generations up to last. For
// all series these generations must be drained, so that no restart offers them again.
func (s *Spool) flushed(last *Generation, f wantedSeries) bool {
	s.mu.Lock()
	all, done := s.pendingLocked(), last.state == drained
	s.mu.Unlock()
	if done || f.ids == nil {
		return done
	}
	for _, p := range all {
		if f.in(p) {
			return false
		}
		if p.Generation == last {
			return true
		}
	}
	return false // the spool was closed
}

// Sync returns when all samples that were acknowledged before are durable, so that what is stored
// elsewhere afterwards never refers to samples that a power cut has lost. A full disk is not an
// error: the log then takes no more samples, and those in memory are being drained.
func (s *Spool) Sync(ctx context.Context) error {
	if s.log.Full() {
		return nil
	}
	return s.log.Sync(ctx)
}

// waitWritten waits until the remote store has the flushed series of all generations up
// to last. A flush of all series waits until these generations are drained.
func (s *Spool) waitWritten(ctx context.Context, last *Generation, f wantedSeries) error {
	log := s.log.Current()
	failed := log.Failed()
	for {
		offers := s.offers.Next()
		if s.flushed(last, f) {
			return nil
		}
		select {
		case <-offers:
		case <-s.ctx.Done():
			return store.ErrClosed
		case <-failed:
			if err := s.endOf(ctx, log, last); err != nil {
				return s.log.Error(ctx, err)
			}
			failed = nil
		case <-ctx.Done():
			if err := s.Health().SinkError; err != nil {
				return fmt.Errorf("wait until the remote store has %d samples (its last error: %v): %w", s.Health().Samples, err, ctx.Err())
			}
			return fmt.Errorf("wait until the remote store has all samples: %w", ctx.Err())
		}
	}
}

// endOf returns the error that kept the end of a generation out of a failed log, or nil if that
// log or its successor has the end.
func (s *Spool) endOf(ctx context.Context, failed *wal.Log, g *Generation) error {
	s.mu.Lock()
	end := g.cut
	s.mu.Unlock()
	if g.StampMS() == 0 { // it cannot be cut
		return failed.Err()
	}
	return end.Wait(ctx)
}
