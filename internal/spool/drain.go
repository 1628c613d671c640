package spool

import (
	"context"
	"math/rand/v2"
	"time"
)

// drainer gives frozen generations to the sink.
func (s *Spool) drainer(ctx context.Context) {
	wait := s.options.retryFirst
	for {
		g, sink, end := s.oldest()
		if g == nil || sink == nil || end.wait(ctx) != nil {
			// Nothing to do, or the log failed before it had the end of the
			// generation: then it comes back with a new log, or the next process.
			select {
			case <-ctx.Done():
				return
			case <-s.pokeDrainer:
			}
			continue
		}
		began := time.Now()
		err := sink.Write(ctx, g)
		s.metrics.sinkSeconds.Observe(time.Since(began).Seconds())
		if err == nil {
			wait = s.options.retryFirst
			s.drained(g)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.sinkFailed(err, wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait - rand.N(wait/4+1)): // not all processes at once
		}
		wait = min(2*wait, s.options.retryMost)
	}
}

// oldest returns the generation that the sink gets next.
func (s *Spool) oldest() (*Generation, Sink, entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.frozen) == 0 {
		return nil, s.sink, entry{}
	}
	return s.frozen[0], s.sink, s.frozen[0].cut
}

func (s *Spool) sinkFailed(err error, retry time.Duration) {
	s.metrics.sinkFailures.Inc()
	s.mu.Lock()
	first := s.sinkErr == nil
	s.sinkErr = err
	if first {
		s.sinkSince = s.now()
	}
	s.mu.Unlock()
	if first {
		s.logger.Warn("the remote store takes no samples; they are kept here", "error", err, "retry_in", retry)
	}
}

// drained drops a generation that the sink has taken: the oldest.
func (s *Spool) drained(g *Generation) {
	s.drainedMS.Store(g.StampMS())
	s.idle.drop(g)
	s.mu.Lock()
	s.frozen = append(s.frozen[:0:0], s.frozen[1:]...)
	s.frozenMem.Add(-g.memory())
	s.logBytes.Add(-g.Bytes())
	end := g.end
	recovered := s.sinkErr != nil
	s.sinkErr = nil
	s.mu.Unlock()
	if recovered {
		s.logger.Info("the remote store takes samples again")
	}
	s.metrics.drainedSamples.Add(float64(g.Samples()))
	s.metrics.drainedGenerations.Inc()
	s.release(g)
	s.overfull.Store(false)
	close(g.done)
	if err := s.giveUp(end); err != nil && s.ctx.Err() == nil {
		s.logger.Warn("give up log segments; it is tried again with a later generation", "error", err)
	}
	s.room.Announce()
	poke(s.pokeKeeper)
}
