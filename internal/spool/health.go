package spool

import "time"

// Health is the state of a spool.
type Health struct {
	// Samples that are not in the remote store yet.
	Generations int       // that are complete and wait for the sink
	Samples     int64     // overwritten ones included
	LogBytes    int64     // on disk
	FileBytes   int64     // on disk, beside the log, including files that only views hold
	MemoryBytes int64     // in memory, including heads that only views hold
	Oldest      time.Time // when the oldest sample arrived; zero if there is none

	Started   bool      // there is a sink
	SinkError error     `json:"-"` // of the last attempt; nil if it succeeded, or if the present one has written samples
	SinkSince time.Time // of the first of the current failures; zero if SinkError is nil
	SinkFails uint64    `json:"-"` // attempts that failed since the start

	Err error `json:"-"` // why samples are refused, nil if they are not
}

// Health returns the current state.
func (s *Spool) Health() Health {
	h := Health{
		Samples:     s.active.Load().Samples(),
		LogBytes:    s.logBytes.Load(),
		MemoryBytes: s.memory(),
		Err:         s.Healthy(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.frozenLocked()
	h.Generations, h.FileBytes = len(waiting), s.spillTotal
	for _, g := range waiting {
		h.Samples += g.waiting()
	}
	first := s.undrainedLocked()[0]
	if began := first.began.Load(); began != nil {
		h.Oldest = *began
	}
	h.Started = s.sink != nil
	if s.sinkErr != nil && (IsPartial(s.sinkErr) || first.wrote.Load() == s.sinkWrote) {
		h.SinkError, h.SinkSince = s.sinkErr, s.sinkSince
	}
	h.SinkFails = s.sinkFails
	return h
}

// Healthy returns nil while the spool accepts samples, and otherwise why it refuses them.
// During an outage of the remote store it returns nil until the spool is so full that a batch
// does not fit.
func (s *Spool) Healthy() error {
	if err := s.writable(); err != nil {
		return err
	}
	if log := s.log.Current(); log != nil && log.Err() != nil {
		return log.Err()
	}
	if s.overfull.Load() || s.full(0) {
		return s.fullError()
	}
	return nil
}
