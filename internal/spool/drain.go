package spool

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/notify"
	"varve/internal/writelog"
)

// drainer gives frozen generations to the sink.
func (s *Spool) drainer(ctx context.Context) {
	wait := s.options.retryFirst
	for {
		g, sink, end := s.oldest()
		if g == nil || sink == nil || !s.ended(ctx, end) {
			// Nothing to do, or the log failed before it had the end of the generation. In that
			// case the next process replays the generation and drains it.
			select {
			case <-ctx.Done():
				return
			case <-s.pokeDrainer:
			}
			continue
		}
		err := s.offer(ctx, sink, g)
		if err == nil {
			wait = s.options.retryFirst
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.sinkFailed(err, wait)
		if IsPartial(err) {
			s.offerBehind(ctx, sink)
		}
		if !s.pause(ctx, wait-rand.N(wait/4+1)) { // not all processes at once
			return
		}
		wait = min(2*wait, s.options.retryMost)
	}
}

// ended reports whether the log has the end of a generation, or has no space for it:
// see cutLocked.
func (s *Spool) ended(ctx context.Context, end writelog.Entry) bool {
	return end.Wait(ctx) == nil || ctx.Err() == nil && s.log.Full()
}

// pause waits between two attempts, for a shorter time during a flush. It reports false
// if ctx has ended.
func (s *Spool) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	case <-s.pokeRetry:
		select {
		case <-ctx.Done():
		case <-time.After(s.options.retryFirst):
		}
	}
	return ctx.Err() == nil
}

// offer gives one generation to the sink. If the sink writes all of it, it is drained as soon
// as all earlier generations are.
func (s *Spool) offer(ctx context.Context, sink Sink, g *Generation) error {
	began := time.Now()
	err := sink.Write(ctx, g)
	s.metrics.sinkSeconds.Observe(time.Since(began).Seconds())
	partial, _ := errors.AsType[*PartialError](err)
	s.mu.Lock()
	switch {
	case err == nil:
		g.state, g.left = written, roaring.New()
	case partial != nil && partial.Series != nil:
		g.left = partial.Series
	}
	s.mu.Unlock()
	s.offers.Notify()
	for g := s.writtenFirst(); g != nil; g = s.writtenFirst() {
		s.drained(g)
	}
	return err
}

// offersInVain is how many generations in a row the sink may write nothing of before the spool
// stops offering more in this round.
const offersInVain = 4

// offerBehind offers the generations after the oldest, in order: the failure of the oldest may
// concern few samples, and must not block all others. A round goes through all of them, in one or
// several calls; passed is the number of the last one that was offered in it.
func (s *Spool) offerBehind(ctx context.Context, sink Sink) {
	for inVain := 0; inVain < offersInVain && ctx.Err() == nil; {
		g, end := s.notOffered()
		if g == nil || !s.ended(ctx, end) {
			return
		}
		s.passed = g.number
		err := s.offer(ctx, sink, g)
		switch partial, ok := errors.AsType[*PartialError](err); {
		case err == nil || ok && partial.Written:
			inVain = 0
		case !ok:
			return
		default:
			inVain++
		}
	}
}

// IsPartial reports whether err contains a PartialError.
func IsPartial(err error) bool { return errors.As(err, new(*PartialError)) }

// writtenFirst returns the oldest generation if the sink has written it, nil otherwise.
func (s *Spool) writtenFirst() *Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.undrainedLocked()[0]; g.state == written {
		return g
	}
	return nil
}

// notOffered returns the first generation after the oldest that was not offered in this
// round, and its end in the log. If all were offered, it returns nil, and the next round
// begins.
func (s *Spool) notOffered() (*Generation, writelog.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.undrainedLocked()[1:] {
		if g.state == frozen && g.number > s.passed {
			return g, g.cut
		}
	}
	s.passed = 0
	return nil, writelog.Entry{}
}

// oldest returns the generation that the sink gets next.
func (s *Spool) oldest() (*Generation, Sink, writelog.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.undrainedLocked()[0]; g.state != active {
		return g, s.sink, g.cut
	}
	return nil, s.sink, writelog.Entry{}
}

func (s *Spool) sinkFailed(err error, retry time.Duration) {
	s.metrics.sinkFailures.Inc()
	s.mu.Lock()
	first := s.sinkErr == nil
	s.sinkErr = err
	s.sinkFails++
	s.sinkWrote = s.undrainedLocked()[0].wrote.Load()
	if first {
		s.sinkSince = s.now()
	}
	s.mu.Unlock()
	notify.Wake(s.pokeKeeper) // a flush may wait for the active generation
	if first {
		s.logger.Warn("the remote store accepts no samples; they wait here", "error", err, "retry_in", retry)
	}
}

// drained drops the oldest generation, which the sink has written.
func (s *Spool) drained(g *Generation) {
	s.metrics.drainedSamples.Add(float64(g.Samples()))
	s.metrics.drainedGenerations.Inc()
	s.drainedNumber.Store(g.number)
	s.passed = 0
	s.dropOldest(g)
	s.mu.Lock()
	end := g.end
	recovered := s.sinkErr != nil
	s.sinkErr = nil
	s.mu.Unlock()
	if recovered {
		s.logger.Info("the remote store accepts samples again")
	}
	s.overfull.Store(false)
	s.offers.Notify()
	if err := s.giveUp(end); err != nil && s.ctx.Err() == nil {
		s.logger.Warn("log segments could not be released; will retry with a later generation", "error", err)
	}
	s.room.Notify()
	notify.Wake(s.pokeKeeper)
}

// dropOldest makes the oldest generation a drained one, and releases it.
func (s *Spool) dropOldest(g *Generation) {
	s.idle.drop(g)
	s.mu.Lock()
	g.state = drained
	s.viewed++
	s.mu.Unlock()
	s.logBytes.Add(-g.Bytes())
	s.release(g)
}
