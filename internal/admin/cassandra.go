package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"varve/internal/cassandra"
	"varve/internal/cassandra/layout"
	"varve/internal/clip"
	"varve/internal/httpapi"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/timeline/spooled"
)

// A cassandraAnswer is the answer of GET /admin/cassandra. Unknown times are omitted.
type cassandraAnswer struct {
	cassandraWriter

	Events *eventSpool `json:"timeline_spool,omitempty"` // missing if no timeline is spooled

	Meta    *cassandraCluster  `json:"meta_cluster,omitempty"` // missing if the cluster that is written to has the metadata
	Read    []cassandraCluster `json:"read_clusters"`
	Further []furtherKeyspace  `json:"keyspaces,omitempty"` // besides the one that the other members describe
}

// A furtherKeyspace is a keyspace for the metrics of a rule.
type furtherKeyspace struct {
	Metrics []string `json:"metrics"`
	cassandraWriter
}

// A cassandraWriter is a keyspace that is written to.
type cassandraWriter struct {
	Refusing string `json:"refusing,omitempty"` // why points are refused
	Degraded string `json:"degraded,omitempty"` // why Cassandra accepts nothing, since when, and how much waits

	Cluster cassandraState `json:"cluster"` // the cluster that is written to

	Spool struct {
		Samples     int64      `json:"samples"`     // not in Cassandra yet
		Generations int        `json:"generations"` // complete and waiting
		LogBytes    int64      `json:"log_bytes"`
		FileBytes   int64      `json:"file_bytes"`
		MemoryBytes int64      `json:"memory_bytes"`
		Oldest      *time.Time `json:"oldest,omitempty"` // when the oldest of them arrived
		FailingFrom *time.Time `json:"failing_since,omitempty"`
		Trend       float64    `json:"samples_per_second"`           // growth in the last minute of an outage or the drain after it, negative if it shrank; else 0
		FullIn      int64      `json:"full_in_seconds,omitempty"`    // until points are refused, at this trend
		DrainedIn   int64      `json:"drained_in_seconds,omitempty"` // until nothing waits, at this trend
		Error       string     `json:"error,omitempty"`              // of the last attempt to write to Cassandra
	} `json:"spool"`

	Keyspace *cassandraKeyspace `json:"keyspace,omitempty"` // missing until it is opened
	Waiting  string             `json:"waiting,omitempty"`  // why it is not open
	Refused  []layout.Refusal   `json:"refused"`            // samples that Cassandra will never accept, by reason
}

// An eventSpool is the spool of timelines.
type eventSpool struct {
	Events      int64      `json:"events"` // not in Cassandra yet
	LogBytes    int64      `json:"log_bytes"`
	MaxBytes    int64      `json:"max_bytes"`          // limit at which events are refused
	Oldest      *time.Time `json:"oldest,omitempty"`   // no waiting event is older
	Refusing    string     `json:"refusing,omitempty"` // why events are refused
	FailingFrom *time.Time `json:"failing_since,omitempty"`
	Error       string     `json:"error,omitempty"` // of the last attempt to write to Cassandra
}

func newEventSpool(h spooled.Health) *eventSpool {
	e := &eventSpool{Events: h.Events, LogBytes: h.Bytes, MaxBytes: h.BytesMax, Oldest: known(h.Oldest), FailingFrom: known(h.Since)}
	if h.Refusing != nil {
		e.Refusing = h.Refusing.Error()
	}
	if h.Failing != nil {
		e.Error = h.Failing.Error()
	}
	return e
}

type cassandraState struct {
	Name      string     `json:"name"`
	Connected bool       `json:"connected"`
	Since     *time.Time `json:"since,omitempty"` // since when connected has its value
	Reason    string     `json:"reason,omitempty"`
	Nodes     int        `json:"nodes"`
	Silent    int        `json:"silent_nodes"` // nodes that have stopped answering
	Version   string     `json:"version,omitempty"`
}

// A cassandraCluster is a cluster besides the one that is written to.
type cassandraCluster struct {
	cassandraState
	StartMS  *int64             `json:"start_ms,omitempty"` // queries that end earlier do not use it
	EndMS    *int64             `json:"end_ms,omitempty"`   // queries that begin later do not use it
	Keyspace *cassandraKeyspace `json:"keyspace,omitempty"`
	Waiting  string             `json:"waiting,omitempty"`
}

type cassandraKeyspace struct {
	Name         string   `json:"name"`
	Layout       string   `json:"layout"`
	*layout.Rows          // missing for a layout without KairosDB's rows
	Notes        []string `json:"notes"`
}

func newCassandraAnswer(st cassandra.Status) cassandraAnswer {
	a := cassandraAnswer{cassandraWriter: newCassandraWriter(st), Read: []cassandraCluster{}}
	if st.Meta != nil {
		meta := newCassandraCluster(*st.Meta)
		a.Meta = &meta
	}
	for _, c := range st.Read {
		read := newCassandraCluster(c)
		read.StartMS, read.EndMS = bound(c.Within.StartMS, model.AllTime.StartMS), bound(c.Within.EndMS, model.AllTime.EndMS)
		a.Read = append(a.Read, read)
	}
	return a
}

func newCassandraWriter(st cassandra.Status) cassandraWriter {
	written := newCassandraCluster(st.Written)
	a := cassandraWriter{
		Refusing: st.Refusing, Degraded: st.Degraded, Refused: listed(st.Refused),
		Cluster: written.cassandraState, Keyspace: written.Keyspace, Waiting: written.Waiting,
	}
	h := st.Spool
	a.Spool.Samples, a.Spool.Generations = h.Samples, h.Generations
	a.Spool.LogBytes, a.Spool.FileBytes, a.Spool.MemoryBytes = h.LogBytes, h.FileBytes, h.MemoryBytes
	a.Spool.Oldest, a.Spool.FailingFrom = known(h.Oldest), known(h.SinkSince)
	a.Spool.Trend = math.Round(st.Trend.SamplesPerSecond*10) / 10
	a.Spool.FullIn, a.Spool.DrainedIn = int64(st.Trend.Full/time.Second), int64(st.Trend.Drained/time.Second)
	if h.SinkError != nil {
		a.Spool.Error = h.SinkError.Error()
	}
	return a
}

func newCassandraCluster(st cassandra.ClusterStatus) cassandraCluster {
	c := st.State
	a := cassandraCluster{
		cassandraState: cassandraState{st.Name, c.Connected, known(c.Since), c.Reason, c.Nodes, c.Silent, c.Version},
		Waiting:        st.Waiting,
	}
	if k := st.Keyspace; k != nil {
		a.Keyspace = &cassandraKeyspace{Name: k.Name, Layout: st.Layout, Rows: k.Rows, Notes: listed(k.Notes)}
	}
	return a
}

// bound returns one end of a range, nil if there is none.
func bound(ms, none int64) *int64 {
	if ms == none {
		return nil
	}
	return &ms
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Cassandra lists the routes of a server over Cassandra. events is nil if no timelines
// are spooled. queries counts the memory of large answers. log may be nil.
func Cassandra(s *cassandra.Keyspaces, events *spooled.Spool, queries *query.Engine, log *slog.Logger) []httpapi.Route {
	on := httpapi.On
	flushAll := func(ctx context.Context) error { return s.Flush(ctx) }
	if events != nil {
		flushAll = func(ctx context.Context) error {
			if err := s.Flush(ctx); err != nil {
				return err
			}
			return events.Flush(ctx)
		}
	}
	return append([]httpapi.Route{
		on(http.MethodGet, "/admin/cassandra", httpapi.Admin, func(w http.ResponseWriter, r *http.Request) {
			first, further := s.Status()
			a := newCassandraAnswer(first)
			for _, f := range further {
				a.Further = append(a.Further, furtherKeyspace{f.Metrics, newCassandraWriter(f.Status)})
			}
			if events != nil {
				a.Events = newEventSpool(events.Health())
			}
			answer(w, r, log, a, nil)
		}).Taking(),
		on(http.MethodGet, "/admin/deletes", httpapi.Admin, func(w http.ResponseWriter, r *http.Request) {
			jobs, err := s.Deletions(r.Context())
			if jobs == nil && err != nil {
				answer(w, r, log, nil, err)
				return
			}
			list := deleteJobs{Jobs: listed(jobs)}
			if err != nil {
				list.Missing = err.Error()
			}
			answer(w, r, log, list, nil)
		}).Taking(),
		on(http.MethodDelete, "/admin/deletes/{id}", httpapi.Admin, cancelDelete(s, log)).Taking(),
		on(http.MethodPost, "/admin/flush", httpapi.Admin, flush(flushAll, log)).Taking(),
		on(http.MethodGet, "/admin/cardinality", httpapi.Admin, cardinality(queries, func(metric string, limit int) CardinalityAnswer {
			c := s.Cardinality(metric, limit)
			return newCardinalityAnswer(metric, c.Cardinality, c.Report, c.MemoryBytes)
		})).Taking("limit", "metric"),
	}, elsewhere(onlyEmbedded, "the embedded store")...)
}

// deleteJobs are the delete jobs of the keyspaces that answer.
type deleteJobs struct {
	Jobs    []layout.Job `json:"jobs"`
	Missing string       `json:"missing,omitempty"` // why the jobs of other keyspaces are missing
}

// cancelDelete stops a delete job: 200 with the job if it is cancelled, 202 if the node
// that works on it has yet to stop, 404 if there is no such job, 409 if it is done.
func cancelDelete(s *cassandra.Keyspaces, log *slog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		shown := clip.Text(id, 100)
		job, err := s.CancelDeletion(r.Context(), id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			httpapi.WriteErrors(w, http.StatusNotFound, "there is no unfinished delete job "+shown+"; GET /admin/deletes lists them")
		case err == nil && job.State == layout.JobDone:
			httpapi.WriteErrors(w, http.StatusConflict, "delete job "+shown+" is done; there is nothing left to cancel")
		case err == nil && job.State == layout.JobCancelling:
			httpapi.SetHeaders(w.Header())
			w.WriteHeader(http.StatusAccepted)
			json.NewEncoder(w).Encode(job) // an error means that the client is gone
		default:
			answer(w, r, log, job, err)
		}
	}
}

// Texts that name a replacement, over Cassandra, for commands of the embedded store.
const (
	InsteadOfCheck  = "what the index tables lack is found by varve repair --store=cassandra --dry-run, damaged files by Cassandra's nodetool verify"
	InsteadOfStats  = "use Cassandra's nodetool tablestats for sizes of tables, and for the rows of a metric varve inspect --store=cassandra rows METRIC"
	InsteadOfBackup = "take snapshots of the keyspace by Cassandra's nodetool snapshot on every node, after POST /admin/flush here"
)

// onlyEmbedded lists the routes that a server over Cassandra lacks.
var onlyEmbedded = []foreignRoute{
	{http.MethodPost, "/admin/check", InsteadOfCheck},
	{http.MethodGet, "/admin/stats", InsteadOfStats},
	{http.MethodPost, "/admin/backup", InsteadOfBackup},
	{http.MethodPost, "/admin/compact", "Cassandra compacts by itself: nodetool compact forces it, POST /admin/flush hands over what waits here"},
}

// maxFlushes bounds the requests that wait for a flush. In an outage each waits until
// its client leaves, and occupies a connection that senders of points need.
const maxFlushes = 32

// flush answers when everything that was sent before is in Cassandra.
func flush(f func(context.Context) error, log *slog.Logger) http.HandlerFunc {
	places := make(chan struct{}, maxFlushes)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			httpapi.WriteUnavailable(w, r, fmt.Sprintf("%d requests already wait for a flush, the maximum; GET /admin/cassandra says what they wait for", maxFlushes))
			return
		}
		answer(w, r, log, nil, f(r.Context()))
	}
}
