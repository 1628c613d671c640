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
	RoleRead = "read" // nothing is written or made there, deletes aside
	RoleMeta = "meta" // key-values only
)

// A Layout opens keyspaces, and knows before any is open what none can hold.
type Layout interface {
	// CheckSeries says why no sample of a series can be stored, nil if some can.
	CheckSeries(model.Series) error

	// CheckSample says why a sample cannot be stored, as store.SampleChecker does.
	CheckSample(nowMS int64, k model.Kind, ms int64, value uint64, data []byte, ttl uint32) error

	// Open opens the session's keyspace, and makes what is missing as far as the
	// settings want that. It waits for Cassandra until ctx ends.
	Open(ctx context.Context, session *cql.Session, o Options) (Keyspace, error)
}

// Default is the layout of a keyspace whose settings name none, and always that of the
// keyspaces with the metadata: KairosDB's.
const Default = "kairosdb"

// Layouts are all that there are, by their names in settings.
type Layouts map[string]Layout

// Named returns the layout of a name in the settings, where nothing means Default.
func (l Layouts) Named(name string) (Layout, error) {
	if found, ok := l[cmp.Or(name, Default)]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("layout: %q: there is no such layout of tables; want %s", name, strings.Join(slices.Sorted(maps.Keys(l)), " or "))
}

// Options say how a keyspace is opened.
type Options struct {
	Role        string
	Replication string // of a new keyspace; empty is as in the layout's settings
	Cluster     string // in delete jobs; empty for the cluster that is written to
	Node        string // names this process among all that work on the keyspace, the same after a restart

	// Services returns the keyspace that has the metadata, where delete jobs are kept
	// too. nil is the one that is opened.
	Services func() (store.KeyValues, error)

	Told       func(doing string) // what takes seconds
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// A Keyspace is an open one. One that Default has opened is a store.KeyValues too. Of role
// meta it is nothing else: Sink, Look and Deleter must not be called.
type Keyspace interface {
	Description() Description

	// Confirm checks that samples are still placed as when the keyspace was opened. After
	// a *ChangedError nothing may be read or written, until a later call returns nil.
	Confirm(ctx context.Context) error

	Sink() Sink
	Look() Look // begins one
	Deleter() Deleter
	Close()
}

// A ChangedError means that a keyspace was created again with other rows while it was open:
// samples would be read, and written, at wrong times.
type ChangedError struct {
	Keyspace, Table  string
	Name, Opened, Is string // of a setting
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("keyspace %s, table %s: %s is %s, and was %s when the server opened the keyspace: the keyspace was created again, or the table was changed. "+
		"If the new value is right, restart the server: it then writes the waiting samples by it. Otherwise restore the old value", e.Keyspace, e.Table, e.Name, e.Is, e.Opened)
}

// A Description is what operators are told of a keyspace.
type Description struct {
	Name  string
	Rows  *Rows // nil in a layout that has no rows of KairosDB
	Notes []string
}

// Rows describe rows of KairosDB.
type Rows struct {
	TimeUnit string
	Width    int64 // in that unit
	Inverted bool  // the keyspace has the tables of the inverted index
}

// A Sink takes what the spool holds.
type Sink interface {
	spool.Sink

	// Refusals tells of the samples that were dropped since the start, by reason.
	Refusals() []Refusal
}

// A Refusal tells of samples that were taken in and cannot be stored.
type Refusal struct {
	Reason string
	Count  int64
	LastAt time.Time
	Last   string // series, time and, where there is one, the error
}

// A Look is one request's look at the index. It reads no part of the index twice.
type Look interface {
	// Current makes the look read what is in Cassandra now, at a quorum, and answer from no
	// copy of it that an earlier look has left in memory. It is called before all other
	// methods.
	Current()

	// Select returns the series that match and may have samples in the range. If more
	// than the limit of sel match, it may return some of them, or a *store.LimitError. Several
	// goroutines may call the Tick of sel.
	Select(ctx context.Context, sel store.Selection) (Found, error)

	// Names lists names as store.View does.
	Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error)

	// RowOf returns the row that has samples of a time: limits may count by row.
	RowOf(ms int64) int64

	// Counts says what was done so far, for traces.
	Counts() []store.Count
}

// A Found is the series that a look has found, each once, in no order. A view holds it
// until it is closed: a layout that holds as little as it can of each series serves wide
// metrics best. Series have places, from 0 to Len()-1.
type Found interface {
	Len() int

	// Series returns the series of a place. It is cheap: nothing is read.
	Series(place int) model.Series

	// Open returns a cursor over the samples that the series of a place has in a range.
	// Nothing is read before its first Next.
	Open(ctx context.Context, place int, o store.ReadOptions) store.Cursor
}

// A Deleter deletes samples.
type Deleter interface {
	// Delete removes samples that were written with a timestamp up to stampMS. What
	// takes long is a job: if ctx ends before it is done, the error says that it goes on.
	Delete(ctx context.Context, stampMS int64, deletions ...store.Deletion) error

	// Record tells other processes of deletions, before they are made.
	Record(ctx context.Context, stampMS int64, deletions ...store.Deletion) error

	Repeater

	// Jobs lists the delete jobs of all nodes, newest first.
	Jobs(ctx context.Context) ([]Job, error)

	// Cancel stops a job, whichever node works on it. store.ErrNotFound: it is not
	// known.
	Cancel(ctx context.Context, id string) (Job, error)

	// Resume goes on with jobs that no node works on. It is called at the start and
	// each minute.
	Resume(ctx context.Context) error
}

// A Repeater makes deletions again that other processes made while samples were on
// their way here.
type Repeater interface {
	// Recorded calls f with each deletion, by any node, with a timestamp from fromMS on.
	Recorded(ctx context.Context, fromMS int64, f func(stampMS int64, del store.Deletion) error) error

	// Place returns the row of a sample, and its time as it is read.
	Place(ms int64) (rowTimeMS, storedMS int64)

	// DeleteWritten removes samples of one metric that were written with a timestamp up
	// to stampMS.
	DeleteWritten(ctx context.Context, stampMS int64, metric string, written []Written) error
}

// Written are samples of one row that this process has written.
type Written struct {
	Series    model.Series
	RowTimeMS int64
	Times     model.TimeRange // as they are read
}
