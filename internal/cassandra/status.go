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

// A Status describes the state of the store.
type Status struct {
	Refusing string `json:",omitempty"` // why samples are refused
	Degraded string `json:",omitempty"` // why Cassandra accepts nothing, since when, and how many samples wait
	Spool    spool.Health
	Trend    Trend // of the samples in the spool
	Refused  []layout.Refusal

	Written ClusterStatus
	Meta    *ClusterStatus // nil if the cluster that is written to has the metadata
	Read    []ClusterStatus
}

// A ClusterStatus describes a cluster.
type ClusterStatus struct {
	Name     string
	Layout   string          // layout of its tables
	Within   model.TimeRange // queries for other times skip this cluster
	State    cql.State
	Keyspace *layout.Description // nil until the keyspace is open
	Waiting  string              // why it is not open
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

// Healthy returns nil while samples are accepted, otherwise why they are not.
func (s *Store) Healthy() error {
	if s.life.Ended() {
		return store.ErrClosed
	}
	return s.spool.Healthy()
}

// Degraded returns nil while Cassandra accepts samples, otherwise since when and why it does
// not, and how many samples wait.
func (s *Store) Degraded() error {
	h := s.spool.Health()
	since, cause := s.awayFor(h)
	if cause == nil {
		return nil
	}
	what := "samples"
	if spool.IsPartial(cause) {
		what = "all samples"
	}
	text := fmt.Sprintf("Cassandra does not accept "+what+"; %d wait for it in %d bytes on disk", h.Samples, h.LogBytes+h.FileBytes)
	if !since.IsZero() {
		text += ", since " + since.UTC().Format(time.RFC3339)
		if state := s.written.session.State(); !state.Connected && state.Version == "" {
			text += ", when this server started"
		}
	}
	if trend := s.trend().String(); trend != "" {
		text += "; " + trend
	} else if h.Err != nil {
		text += "; further samples are refused"
	}
	return &outageError{text, cause}
}

// An outageError says that Cassandra does not accept samples.
type outageError struct {
	backlog string // what waits, without names and addresses
	cause   error
}

func (e *outageError) Error() string { return e.backlog + ": " + e.cause.Error() }
func (e *outageError) Unwrap() error { return e.cause }

// Public is what the status of the server's health tells everybody.
func (e *outageError) Public() string { return e.backlog }

// awayFor returns why Cassandra does not accept samples, nil if it does, and since when, zero if that
// is not known.
func (s *Store) awayFor(h spool.Health) (since time.Time, cause error) {
	switch state := s.written.session.State(); {
	case !state.Connected:
		return state.Since, errors.New(state.Reason)
	case s.written.keyspace() == nil:
		return time.Time{}, s.written.why()
	case errors.Is(h.SinkError, cql.ErrAway): // they answer again, and the attempt that failed is repeated, which may take minutes
		return time.Time{}, nil
	}
	return h.SinkSince, h.SinkError
}

// degradedSince returns when Degraded began to fail, and the present time if that is unknown.
func (s *Store) degradedSince() time.Time {
	if state := s.written.session.State(); !state.Connected {
		return state.Since
	}
	if h := s.spool.Health(); h.SinkError != nil {
		return h.SinkSince
	}
	return s.now()
}

// A Health reports the state of a cluster.
type Health struct {
	Name    string
	Healthy func(context.Context) error // returns nil while it answers, otherwise why it does not
}

// Others lists the clusters other than the one that is written to.
func (s *Store) Others() []Health {
	var others []Health
	for _, c := range s.clusters()[1:] {
		others = append(others, Health{c.name, func(context.Context) error { return c.degraded() }})
	}
	return others
}
