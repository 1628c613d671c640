// Package layout is the interface between the store over Cassandra and a layout, which
// stores samples in the tables of a keyspace. A layout implements [Layout], the store uses
// it, and package config lists them, as in database/sql/driver. Keyspaces of one store may
// have different layouts.
//
//	Layout    says which samples can be stored; opens a keyspace
//	Keyspace  an open keyspace: the four below
//	Sink      writes generations of the spool
//	Look      finds names and series for one request
//	Found     the series that a Look has found: opens cursors
//	Deleter   deletes samples, and knows of deletes by other processes
//
// Methods of a Keyspace and of the four may be called by many goroutines at once. Errors
// are those of package store or of the context; any other error is a fault.
//
// Rules for every layout:
//
//   - A sample is written under the timestamp at which it was acknowledged.
//   - A read on which a lasting decision or a lasting result depends uses a quorum,
//     whatever consistency is configured for queries. If such a read fails, the layout assumes
//     that there may be data. Deletes and repairs use a quorum of each data center, so that
//     they reach, and read from, all of them.
//   - A sample that cannot be stored does not affect others. A range of the ring
//     that cannot be written delays only its own samples; the sink returns a
//     spool.PartialError.
//   - The memory of a request is bounded by the matching series.
package layout

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
)

// Roles of a keyspace.
const (
	RoleAll  = "all"
	RoleRead = "read" // nothing is written or created there, except deletes
	RoleMeta = "meta" // key-values only
)

// A Layout opens keyspaces, and can say without an open keyspace what none can store.
type Layout interface {
	// CheckSeries returns why no sample of a series can be stored, nil if samples can be.
	CheckSeries(model.Series) error

	// CheckSample returns why a sample cannot be stored, as in store.SampleChecker.
	CheckSample(nowMS int64, k model.Kind, ms int64, value uint64, data []byte, ttl uint32) error

	// Open opens the session's keyspace, and creates what is missing if the settings allow it.
	// It waits for Cassandra until ctx ends.
	Open(ctx context.Context, session *cql.Session, o Options) (Keyspace, error)
}

// Default is the layout of a keyspace whose settings name none, and always that of the
// keyspaces with the metadata: KairosDB's.
const Default = "kairosdb"

// Layouts are the available layouts, by their names in the settings.
type Layouts map[string]Layout

// Named returns the layout with a name from the settings; "" means Default.
func (l Layouts) Named(name string) (Layout, error) {
	if found, ok := l[cmp.Or(name, Default)]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("layout: %q: there is no such layout of tables; want %s", name, strings.Join(slices.Sorted(maps.Keys(l)), " or "))
}

// Options say how a keyspace is opened.
type Options struct {
	Role        string
	Replication string // of a new keyspace; empty for that of the layout's settings
	Cluster     string // in delete jobs; empty for the cluster that is written to
	Node        string // identifies this server among all that use the keyspace, also after a restart

	// Services returns the keyspace that has the metadata and the delete jobs. nil means the
	// keyspace that is opened.
	Services func() (store.KeyValues, error)

	// ClockSet returns nil once this machine's clock can be relied on, an error if ctx ends
	// before. Work that the keyspace does by itself waits for it before it writes. nil = the clock
	// always can be.
	ClockSet func(context.Context) error

	Progress   func(doing string) // is called before steps that may take seconds
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// A Keyspace is an open keyspace. If the layout is Default, it also implements store.KeyValues.
// In the role meta it serves only as that: Sink, Look and Deleter must not be called.
type Keyspace interface {
	Description() Description

	// Confirm checks that rows still have the unit and width of when the keyspace was opened, and
	// that its tables keep what is written.
	// After a *ChangedError nothing may be read or written until a later call returns nil.
	Confirm(ctx context.Context) error

	Sink() Sink
	Look() Look // begins the look of one request
	Deleter() Deleter
	Close()
}

// A ChangedError means that a keyspace was changed while it was open, so that samples would be read or
// written at wrong times, or lost.
type ChangedError struct{ Reason string }

func (e *ChangedError) Error() string { return e.Reason }

// A Description describes a keyspace to operators.
type Description struct {
	Name  string
	Rows  *Rows // nil if the layout does not have KairosDB's rows
	Notes []string
}

// Rows describe rows of KairosDB.
type Rows struct {
	TimeUnit string `json:"row_time_unit"`
	Width    int64  `json:"row_width"`      // in that unit
	Inverted bool   `json:"inverted_index"` // there are its tables; without them, selective queries read all row keys of a metric and row time
}

// A Sink writes the generations of the spool.
type Sink interface {
	spool.Sink

	// Refusals returns the samples dropped since the start, by reason.
	Refusals() []Refusal
}

// A Refusal describes acknowledged samples that cannot be stored.
type Refusal struct {
	Reason string    `json:"reason"`
	Count  int64     `json:"count"`
	LastAt time.Time `json:"last_at"`
	Last   string    `json:"last"` // series, time and, if there is one, the error
}

// A Look is the access of one request to the index. It reads no part of the index twice.
type Look interface {
	// Current makes the look read the present state from Cassandra, at a quorum, instead of
	// copies that earlier looks have left in memory, and return samples of the range only. It
	// must be called before all other methods.
	Current()

	// Select returns the series that match and may have samples in the range. If more
	// than the limit of sel match, it may return some of them, or a *store.LimitError. Several
	// goroutines may call the Tick of sel.
	Select(ctx context.Context, sel store.Selection) (Found, error)

	// Names lists names as store.View does.
	Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error)

	// RowOf returns the row time of a sample; limits may count by row.
	RowOf(ms int64) int64

	// Counts returns counts of the work done so far, for traces.
	Counts() []store.Count
}

// A Found contains the series that a look has found, each once, in no particular order, at
// places from 0 to Len()-1. A view keeps it until it is closed, so a layout should keep as
// little as possible for each series.
type Found interface {
	Len() int

	// Series returns the series at a place. It is cheap: it reads nothing.
	Series(place int) model.Series

	// Open returns a cursor over the samples of the series at a place. It reads nothing before
	// its first Next.
	Open(ctx context.Context, place int, o store.ReadOptions) store.Cursor
}

// A Deleter deletes samples.
type Deleter interface {
	// Delete removes samples that were written with a timestamp up to stampMS. A long delete
	// becomes a job: if ctx ends first, the job continues, and the error says so.
	Delete(ctx context.Context, stampMS int64, deletions ...store.Deletion) error

	// Record tells other processes about deletions before they are performed.
	Record(ctx context.Context, stampMS int64, deletions ...store.Deletion) error

	Repeater

	// Jobs lists the delete jobs of all nodes, newest first.
	Jobs(ctx context.Context) ([]Job, error)

	// Cancel stops a job, whichever node works on it. It returns store.ErrNotFound if there is
	// no such job.
	Cancel(ctx context.Context, id string) (Job, error)

	// Resume continues jobs that no node works on. It is called at the start and every minute.
	Resume(ctx context.Context) error
}

// A Repeater repeats deletions that other processes performed while samples were waiting in
// this process.
type Repeater interface {
	// Recorded calls f with each deletion, by any node, with a timestamp from fromMS on.
	Recorded(ctx context.Context, fromMS int64, f func(stampMS int64, del store.Deletion) error) error

	// Place returns the row time of a sample, the time at which it will be read, and whether
	// a deletion of r deletes it.
	Place(ms int64, r model.TimeRange) (rowTimeMS, storedMS int64, deleted bool)

	// Cuts reports whether samples may be stored at times other than their own.
	Cuts() bool

	// DeleteWritten removes samples of one metric that were written with a timestamp up
	// to stampMS.
	DeleteWritten(ctx context.Context, stampMS int64, metric string, written []Written) error
}

// Written are samples of one row that this process has written.
type Written struct {
	Series    model.Series
	RowTimeMS int64
	Times     model.TimeRange // as in Repeater.Place
}
