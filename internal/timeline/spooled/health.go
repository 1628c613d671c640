package spooled

import (
	"fmt"
	"time"

	"varve/internal/store"
)

// A Health is the state of a spool.
type Health struct {
	Events   int64     // that wait
	Bytes    int64     // of the log
	BytesMax int64     // at which events are refused
	Oldest   time.Time // all waiting events were acknowledged at or after this time; zero: none waits

	Refusing error     // why events are refused, nil if they are accepted
	Failing  error     // why the last attempt to drain failed, nil if it succeeded
	Since    time.Time // when attempts began to fail
}

// A failure is a series of failed attempts to drain.
type failure struct {
	err   error // error of the last attempt
	since time.Time
}

// Health returns the current state.
func (s *Spool) Health() Health {
	h := Health{Events: s.waiting.Load(), Bytes: s.bytes.Load(), BytesMax: int64(s.options.BytesMax), Refusing: s.refusing()}
	if h.Events > 0 {
		h.Oldest = time.UnixMicro(s.since.Load())
	}
	if f := s.failing.Load(); f != nil {
		h.Failing, h.Since = f.err, f.since
	}
	return h
}

func (s *Spool) refusing() error {
	if s.log.Closed() {
		return store.ErrClosed
	}
	if err := s.log.Writable(); err != nil {
		return err
	}
	if s.full.Load() {
		return s.fullError()
	}
	return nil
}

func (s *Spool) fullError() error {
	return &store.UnavailableError{Reason: fmt.Sprintf("the spool of timelines is full: %s of %v is reached; bring Cassandra back, or raise the limit", "timeline.spool_bytes_max", s.options.BytesMax)}
}

// Healthy returns nil while events are accepted and put into their timelines, else what is wrong.
func (s *Spool) Healthy() error {
	h := s.Health()
	if h.Refusing != nil {
		return h.Refusing
	}
	if h.Failing != nil {
		return fmt.Errorf("events of the spool of timelines cannot be put into Cassandra; %d wait for it in %d bytes on disk, since %s: %w", h.Events, h.Bytes, h.Since.UTC().Format(time.RFC3339), h.Failing)
	}
	return nil
}
