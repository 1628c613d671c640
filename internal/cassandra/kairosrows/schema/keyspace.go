package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/rowtime"
)

// WroteHere is the row_keys.mtime that Varve writes, always with write timestamp 1, so that any
// value of a KairosDB node wins. A partition with this mtime or null has only rows of Varve. It
// is the earliest time that a timeuuid can represent, in 1582.
var WroteHere = cql.UUID{6: 0x10, 8: 0x80, 10: 'v', 11: 'a', 12: 'r', 13: 'v', 14: 'e'}

// A Keyspace is an open keyspace of KairosDB's layout. Its fields do not change.
type Keyspace struct {
	Name        string
	Session     *cql.Session
	Spec        rowtime.Spec
	Tables      Tables
	IndexShards int      // of varve_row_index; 0 without Varve's own tables
	Notes       []string // what the operator should know about the schema

	config   Config
	settled  specRows // spec as found or created
	lacked   []string // tables of samples and their index that a read-only keyspace did not have
	now      func() time.Time
	progress func(doing string)
	last     atomic.Int64 // the last result of Stamp
}

// Open opens the session's keyspace in the role of config, and creates what is missing if
// config allows it. It waits for Cassandra until ctx ends. Several nodes may do this at once.
// progress, which may be nil, is called before each step that may take seconds. In addition to
// errors of the session Open may return an *cql.TableError.
func Open(ctx context.Context, session *cql.Session, config Config, progress func(doing string)) (*Keyspace, error) {
	if progress == nil {
		progress = func(string) {}
	}
	return open(ctx, session, config, time.Now, progress)
}

func open(ctx context.Context, session *cql.Session, config Config, now func() time.Time, progress func(string)) (*Keyspace, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	ks := &Keyspace{Name: session.KeyspaceName(), Session: session, config: config, now: now, progress: progress}
	if err := session.Wait(ctx); err != nil {
		return nil, err
	}
	if err := ks.checkDatacenters(ctx); err != nil {
		return nil, err
	}
	if err := ks.createKeyspace(ctx); err != nil {
		return nil, err
	}
	progress("reading the tables of keyspace " + ks.Name)
	found, err := session.Tables(ctx)
	if err != nil {
		return nil, err
	}
	if err := ks.checkTables(found); err != nil {
		return nil, err
	}
	if err := ks.checkDropped(ctx); err != nil {
		return nil, err
	}
	if config.Role == RoleMeta {
		return ks, ks.settleMeta(ctx, found)
	}
	if err := ks.checkOwn(found); err != nil {
		return nil, err
	}
	// Tables that describe the keyspace are created first, then their rows are written, then
	// the other tables are created.
	described := func(d definition) bool { return d.Name == specTable || d.part == partOwn }
	if err := ks.createTables(ctx, found, described); err != nil {
		return nil, err
	}
	ks.Tables = tablesOf(found)
	if !ks.Tables.Spec && config.Role != RoleRead {
		return nil, ks.checkMissing(found)
	}
	if err := ks.settleSpec(ctx); err != nil {
		return nil, err
	}
	if err := ks.createTables(ctx, found, func(d definition) bool { return d.part != partOwn }); err != nil {
		return nil, err
	}
	if err := errors.Join(ks.checkMissing(found), ks.checkTables(found)); err != nil {
		return nil, err
	}
	ks.Tables = tablesOf(found)
	if ks.ReadOnly() {
		ks.lacked = lacking(found)
	}
	ks.noteOptions(found)
	return ks, ks.settleOwn(ctx)
}

// createKeyspace creates the keyspace if it is missing and config allows it.
func (ks *Keyspace) createKeyspace(ctx context.Context) error {
	if ks.Session.State().Keyspace {
		return nil
	}
	if ks.config.Create != CreateKeyspace || ks.config.Role == RoleRead {
		return &cql.TableError{Keyspace: ks.Name, Problem: "there is no such keyspace",
			WayOut: "check cassandra.hosts and the spelling of cassandra.keyspace. If the keyspace is to be new, create it with the replication that it needs, or start a server with cassandra.schema.create: keyspace"}
	}
	replication, chosen := ks.config.Replication, ""
	if replication == "" {
		nodes, err := ks.Session.Nodes(ctx)
		if err != nil {
			return err
		}
		replication, chosen = replicationOf(nodes, ks.Session.Datacenter())
	}
	ks.progress("creating keyspace " + ks.Name)
	err := ks.Session.CreateKeyspace(ctx, replication)
	if _, ok := errors.AsType[*cql.RefusedError](err); ok {
		return &cql.TableError{Keyspace: ks.Name, Problem: "it is missing and cannot be created", Err: err,
			WayOut: "see cassandra.schema.replication, or let an administrator create the keyspace"}
	}
	if err == nil && ks.config.Replication != "" {
		ks.note("keyspace %s did not exist; it was created with the replication of cassandra.schema.replication", ks.Name)
	} else if err == nil {
		ks.note("keyspace %s did not exist; it was created with replication %s, chosen for %s. To choose another: ALTER KEYSPACE %s WITH replication = {...}, "+
			"then nodetool repair; for the next one, cassandra.schema.replication. If you expected points in it, check the spelling of cassandra.keyspace",
			ks.Name, replication, chosen, ks.Name)
	}
	return err
}

// replicationOf chooses the replication of a new keyspace: in the data centre in use, so that
// with three nodes one may fail.
func replicationOf(nodes []cql.Node, datacenter string) (replication, why string) {
	if datacenter == "" && len(nodes) > 0 {
		datacenter = nodes[0].Datacenter
	}
	n := datacentersOf(nodes)[datacenter]
	return fmt.Sprintf("{'class': 'NetworkTopologyStrategy', '%s': '%d'}", datacenter, max(1, min(n, 3))),
		fmt.Sprintf("data centre %s (nodes at present: %d)", datacenter, n)
}

// checkDatacenters refuses to treat several data centres as one: a write acknowledged by a
// quorum of one data centre may be missing from a quorum of another.
func (ks *Keyspace) checkDatacenters(ctx context.Context) error {
	if ks.Session.Datacenter() != "" || !ks.Session.LocalConsistency() {
		return nil
	}
	nodes, err := ks.Session.Nodes(ctx)
	if err != nil {
		return err
	}
	if f := DatacenterFinding("", nodes); f.Grade == Bad {
		return &cql.TableError{Keyspace: ks.Name, Problem: f.Text, WayOut: f.Do}
	}
	return nil
}

// checkOwn refuses a keyspace that lacks the inverted index but has the table that says how far
// it is filled. A newly created index would count as complete, and queries by tags would find
// nothing.
func (ks *Keyspace) checkOwn(found map[string]cql.Table) error {
	_, index := found[varveRowIndexTable]
	_, state := found[varveRowStateTable]
	if index || !state || ks.config.Role != RoleAll {
		return nil
	}
	return &cql.TableError{Keyspace: ks.Name, Table: varveRowIndexTable, Problem: "it is missing, although " + varveRowStateTable + " says what it holds",
		WayOut: "drop " + varveRowStateTable + " too; both are created again and filled in the background"}
}

// settleMeta is Open for a keyspace with metadata only.
func (ks *Keyspace) settleMeta(ctx context.Context, found map[string]cql.Table) error {
	if err := ks.createTables(ctx, found, func(definition) bool { return true }); err != nil {
		return err
	}
	ks.Tables = tablesOf(found)
	return ks.checkMissing(found)
}

// Role is the role in which the keyspace was opened.
func (ks *Keyspace) Role() string { return ks.config.Role }

// ReadOnly reports whether nothing may be written to the keyspace except deletes.
func (ks *Keyspace) ReadOnly() bool { return ks.config.Role == RoleRead }

// MayCreate reports whether Varve's own tables may be created in the keyspace.
func (ks *Keyspace) MayCreate() bool { return ks.config.Create != CreateNothing && !ks.ReadOnly() }

// note adds to Notes, without duplicates.
func (ks *Keyspace) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(ks.Notes, text) {
		ks.Notes = append(ks.Notes, text)
	}
}

// Stamp returns a write timestamp: the clock in milliseconds, but always above the previous
// one, since of two writes with equal timestamps a delete wins. It must not be called before the
// clock is known to be set: its timestamps would never go back. So rows of spec, which are written
// while the keyspace is opened, have others.
func (ks *Keyspace) Stamp() int64 {
	for {
		last := ks.last.Load()
		next := max(ks.now().UnixMilli(), last+1)
		if ks.last.CompareAndSwap(last, next) {
			return next
		}
	}
}
