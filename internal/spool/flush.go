package spool

import (
	"context"
	"fmt"

	"varve/internal/store"
	"varve/internal/wal"
)

// Flush returns when everything that was appended before it was called is in
// the remote store, and will not be taken for undrained by another process. The
// stamp is above those of all that, and below those of all that is appended after
// Flush has returned. An error is that of ctx, that of the log, or
// store.ErrClosed.
//
// While the sink is busy the active generation is not cut but marked as wanted:
// all who flush meanwhile share it.
func (s *Spool) Flush(ctx context.Context) (stampMS int64, err error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	last, stampMS, err := s.beginFlush()
	if err != nil {
		return 0, s.logError(ctx, err)
	}
	if last != nil {
		poke(s.pokeKeeper)
		poke(s.pokeRetry)
		if err := s.waitDrained(ctx, last); err != nil {
			return 0, err
		}
		if stampMS == 0 {
			stampMS = last.StampMS() + 1 // the floor of its cut
		}
	}
	s.order.Lock()
	logged := s.logFloorLocked()
	s.order.Unlock()
	if err := logged.wait(ctx); err != nil {
		return 0, s.logError(ctx, err)
	}
	return stampMS, nil
}

// beginFlush returns the last generation with samples, nil if there is none,
// and a stamp, 0 if it is to be the one after that generation's.
func (s *Spool) beginFlush() (last *Generation, stampMS int64, err error) {
	s.order.Lock()
	defer s.order.Unlock()
	s.followClockLocked()
	if g := s.active.Load(); g.Samples() > 0 {
		if s.busy() {
			s.hurried.Store(true)
			return g, 0, nil
		}
		return g, 0, s.cutLocked()
	}
	s.order.floorMS = s.nextStampLocked()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.frozen); n > 0 {
		last = s.frozen[n-1]
	}
	return last, s.order.floorMS, nil
}

func (s *Spool) waitDrained(ctx context.Context, g *Generation) error {
	log := s.log.Load()
	failed := log.Failed()
	for {
		select {
		case <-g.done:
			return nil
		case <-s.ctx.Done():
			return store.ErrClosed
		case <-failed:
			if err := s.endOf(ctx, log, g); err != nil {
				return s.logError(ctx, err)
			}
			failed = nil
		case <-ctx.Done():
			if err := s.Health().SinkError; err != nil {
				return fmt.Errorf("wait until the remote store has taken %d samples (it says: %v): %w", s.Health().Samples, err, ctx.Err())
			}
			return fmt.Errorf("wait until the remote store has taken all samples: %w", ctx.Err())
		}
	}
}

// endOf returns why the end of a generation is not in a log that failed, nil if
// it is there, or in the one after it.
func (s *Spool) endOf(ctx context.Context, failed *wal.Log, g *Generation) error {
	s.mu.Lock()
	end := g.cut
	s.mu.Unlock()
	if g.StampMS() == 0 { // it cannot be cut
		return failed.Err()
	}
	return end.wait(ctx)
}
