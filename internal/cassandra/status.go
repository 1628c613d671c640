package cassandra

import (
	"errors"
	"fmt"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/spool"
	"varve/internal/store"
)

// A Status says how the store is doing.
type Status struct {
	Refusing string `json:",omitempty"` // why samples are not taken
	Degraded string `json:",omitempty"` // why Cassandra takes nothing, since when, and how much waits
	Cluster  cql.State
	Spool    spool.Health
	Keyspace *KeyspaceStatus // nil until it was opened
	Waiting  string          // why it was not
	Refused  []kairosrows.Refusal
}

// A KeyspaceStatus describes an open keyspace.
type KeyspaceStatus struct {
	Name        string
	RowTimeUnit string
	RowWidth    int64 // in that unit
	Notes       []string
}

// Status returns the current state.
func (s *Store) Status() Status {
	st := Status{
		Refusing: textOf(s.Healthy()), Degraded: textOf(s.Degraded()),
		Cluster: s.session.State(), Spool: s.spool.Health(),
	}
	l := s.rows.Load()
	if l == nil {
		st.Waiting = (*s.reason.Load()).Error()
		return st
	}
	st.Keyspace = &KeyspaceStatus{
		Name: l.ks.Name, RowTimeUnit: l.ks.Spec.Unit.String(), RowWidth: l.ks.Spec.Width, Notes: l.ks.Notes,
	}
	st.Refused = l.writer.Refusals()
	return st
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Healthy returns nil while samples are taken, else why they are not.
func (s *Store) Healthy() error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return s.spool.Healthy()
}

// Degraded returns nil while Cassandra takes what it is given, else since when
// and why it does not, and what waits for it.
func (s *Store) Degraded() error {
	h := s.spool.Health()
	var cause error
	var since time.Time
	switch state := s.session.State(); {
	case !state.Connected:
		cause, since = errors.New(state.Reason), state.Since
	case s.rows.Load() == nil:
		cause = *s.reason.Load()
	case h.SinkError != nil:
		cause, since = h.SinkError, h.SinkSince
	default:
		return nil
	}
	text := fmt.Sprintf("Cassandra does not take samples; %d wait for it in %d bytes on disk", h.Samples, h.LogBytes+h.FileBytes)
	if !since.IsZero() {
		text += ", since " + since.UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("%s: %w", text, cause)
}
