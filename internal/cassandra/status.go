package cassandra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
)

// A Status says how the store is doing.
type Status struct {
	Refusing string `json:",omitempty"` // why samples are not taken
	Degraded string `json:",omitempty"` // why Cassandra takes nothing, since when, and how much waits
	Spool    spool.Health
	Trend    Trend // of what waits in the spool
	Refused  []layout.Refusal

	Written ClusterStatus
	Meta    *ClusterStatus // nil if the cluster that is written to has the metadata
	Read    []ClusterStatus
}

// A ClusterStatus describes a cluster.
type ClusterStatus struct {
	Name     string
	Layout   string          // of its tables
	Within   model.TimeRange // queries of other times do not ask it
	State    cql.State
	Keyspace *layout.Description // nil until it was opened
	Waiting  string              // why it was not
}

// Status returns the current state.
func (s *Store) Status() Status {
	st := Status{
		Refusing: textOf(s.Healthy()), Degraded: textOf(s.Degraded()), Spool: s.spool.Health(), Trend: s.trend(),
		Written: s.written.status(),
	}
	if ks := s.written.keyspace(); ks != nil {
		st.Refused = ks.Sink().Refusals()
	}
	if s.meta != nil {
		meta := s.meta.status()
		st.Meta = &meta
	}
	for _, c := range s.read {
		st.Read = append(st.Read, c.status())
	}
	return st
}

func (c *cluster) status() ClusterStatus {
	st := ClusterStatus{Name: c.name, Layout: c.layout, Within: c.within, State: c.session.State()}
	ks := c.keyspace()
	if ks == nil {
		st.Waiting = c.why().Error()
		return st
	}
	d := ks.Description()
	st.Keyspace = &d
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
	switch state := s.written.session.State(); {
	case !state.Connected:
		cause, since = errors.New(state.Reason), state.Since
	case s.written.keyspace() == nil:
		cause = s.written.why()
	case h.SinkError != nil:
		cause, since = h.SinkError, h.SinkSince
	default:
		return nil
	}
	what := "samples"
	if _, ok := errors.AsType[*spool.PartialError](cause); ok {
		what = "all samples"
	}
	text := fmt.Sprintf("Cassandra does not take "+what+"; %d wait for it in %d bytes on disk", h.Samples, h.LogBytes+h.FileBytes)
	if !since.IsZero() {
		text += ", since " + since.UTC().Format(time.RFC3339)
	}
	if trend := s.trend().String(); trend != "" {
		text += "; " + trend
	}
	return fmt.Errorf("%s: %w", text, cause)
}

// degradedSince is when Degraded began to fail, now if that is not known.
func (s *Store) degradedSince() time.Time {
	if state := s.written.session.State(); !state.Connected {
		return state.Since
	}
	if h := s.spool.Health(); h.SinkError != nil {
		return h.SinkSince
	}
	return s.now()
}

// A Health answers how a cluster is.
type Health struct {
	Name    string
	Healthy func(context.Context) error // nil while it answers, else why it does not
}

// Others lists the clusters beside the one that is written to.
func (s *Store) Others() []Health {
	var others []Health
	for _, c := range s.clusters()[1:] {
		others = append(others, Health{c.name, func(context.Context) error { return c.degraded() }})
	}
	return others
}
