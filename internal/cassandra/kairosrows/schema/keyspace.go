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

// WroteHere is the row_keys.mtime that Varve writes, always with write timestamp
// 1, so that any value of a KairosDB node wins. A partition with it or with null
// has rows of Varve only. It is the earliest time a timeuuid can say, 1582.
var WroteHere = cql.UUID{6: 0x10, 8: 0x80, 10: 'v', 11: 'a', 12: 'r', 13: 'v', 14: 'e'}

// A Keyspace is an open keyspace of KairosDB's layout. Its fields do not change.
type Keyspace struct {
	Name        string
	Session     *cql.Session
	Spec        rowtime.Spec
	Tables      Tables
	IndexShards int      // of varve_row_index; 0 without our own tables
	Notes       []string // what the operator should know about the schema

	config  Config
	settled specRows // spec as it was found, or made
	now     func() time.Time
	told    func(doing string)
	last    atomic.Int64 // last stamp
}

// Open opens the session's keyspace for the role that config gives it, and makes
// what is missing, as far as config wants. It waits for Cassandra until ctx
// ends. Several nodes may do this at once. Errors beside those of the session:
// *Error.
func Open(ctx context.Context, session *cql.Session, config Config) (*Keyspace, error) {
	return OpenTelling(ctx, session, config, func(string) {})
}

// OpenTelling is Open that tells what it does, where that may take seconds.
func OpenTelling(ctx context.Context, session *cql.Session, config Config, told func(doing string)) (*Keyspace, error) {
	return open(ctx, session, config, time.Now, told)
}

func open(ctx context.Context, session *cql.Session, config Config, now func() time.Time, told func(string)) (*Keyspace, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	ks := &Keyspace{Name: session.KeyspaceName(), Session: session, config: config, now: now, told: told}
	if err := session.Wait(ctx); err != nil {
		return nil, err
	}
	if err := ks.checkDatacenters(ctx); err != nil {
		return nil, err
	}
	if err := ks.createKeyspace(ctx); err != nil {
		return nil, err
	}
	told("reading the tables of keyspace " + ks.Name)
	found, err := session.Tables(ctx)
	if err != nil {
		return nil, err
	}
	if err := ks.checkTables(found); err != nil {
		return nil, err
	}
	if config.Role == RoleMeta {
		return ks, ks.settleMeta(ctx, found)
	}
	if err := ks.checkOwn(found); err != nil {
		return nil, err
	}
	// What describes the keyspace comes first, then its rows, then the rest.
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
	ks.noteOptions(found)
	return ks, ks.settleOwn(ctx)
}

// createKeyspace makes the keyspace if it is missing and config wants that.
func (ks *Keyspace) createKeyspace(ctx context.Context) error {
	if ks.Session.State().Keyspace {
		return nil
	}
	if ks.config.Create != CreateKeyspace || ks.config.Role == RoleRead {
		return &Error{Keyspace: ks.Name, Problem: "there is no such keyspace",
			WayOut: "create it with the replication that it needs, or set cassandra.schema.create to keyspace"}
	}
	replication, chosen := ks.config.Replication, ""
	if replication == "" {
		nodes, err := ks.Session.Nodes(ctx)
		if err != nil {
			return err
		}
		replication, chosen = replicationOf(nodes, ks.Session.Datacenter())
	}
	ks.told("creating keyspace " + ks.Name)
	err := ks.Session.CreateKeyspace(ctx, replication)
	if _, ok := errors.AsType[*cql.RefusedError](err); ok {
		return &Error{Keyspace: ks.Name, Problem: "it is missing and cannot be created", Err: err,
			WayOut: "see cassandra.schema.replication, or let an administrator create the keyspace"}
	}
	if err == nil && ks.config.Replication != "" {
		ks.note("keyspace %s did not exist; it was created with the replication of cassandra.schema.replication", ks.Name)
	} else if err == nil {
		ks.note("keyspace %s did not exist; it was created with replication %s, chosen for %s. To choose another: ALTER KEYSPACE %s WITH replication = {...}, "+
			"then nodetool repair; for the next one, cassandra.schema.replication. If you expected points in it, look for a typing error in cassandra.keyspace",
			ks.Name, replication, chosen, ks.Name)
	}
	return err
}

// replicationOf chooses how a new keyspace is replicated: in the data centre that is
// used, so that one node may fail where there are three.
func replicationOf(nodes []cql.Node, datacenter string) (replication, why string) {
	if datacenter == "" && len(nodes) > 0 {
		datacenter = nodes[0].Datacenter
	}
	n := datacentersOf(nodes)[datacenter]
	return fmt.Sprintf("{'class': 'NetworkTopologyStrategy', '%s': '%d'}", datacenter, max(1, min(n, 3))),
		fmt.Sprintf("the %d nodes that data centre %s has at present", n, datacenter)
}

// checkDatacenters refuses to use several data centres as one: a write that is
// acknowledged by the quorum of one is not in that of the other.
func (ks *Keyspace) checkDatacenters(ctx context.Context) error {
	if ks.Session.Datacenter() != "" || !ks.Session.LocalConsistency() {
		return nil
	}
	nodes, err := ks.Session.Nodes(ctx)
	if err != nil {
		return err
	}
	if f := DatacenterFinding("", nodes); f.Grade == Bad {
		return &Error{Keyspace: ks.Name, Problem: f.Text, WayOut: f.Do}
	}
	return nil
}

// checkOwn refuses a keyspace that lacks the inverted index and has what says how far it
// is filled. A new one would count as complete, and queries by tags would find nothing.
func (ks *Keyspace) checkOwn(found map[string]cql.Table) error {
	_, index := found[varveRowIndexTable]
	_, state := found[varveRowStateTable]
	if index || !state || ks.config.Role != RoleAll {
		return nil
	}
	return &Error{Keyspace: ks.Name, Table: varveRowIndexTable, Problem: "it is missing, although " + varveRowStateTable + " says what it holds",
		WayOut: "drop " + varveRowStateTable + " too; both are created again and filled in the background"}
}

// settleMeta is Open for a keyspace of metadata only.
func (ks *Keyspace) settleMeta(ctx context.Context, found map[string]cql.Table) error {
	if err := ks.createTables(ctx, found, func(definition) bool { return true }); err != nil {
		return err
	}
	ks.Tables = tablesOf(found)
	return ks.checkMissing(found)
}

// Role says what the keyspace is for.
func (ks *Keyspace) Role() string { return ks.config.Role }

// ReadOnly says that the keyspace is not to be written, deletes aside.
func (ks *Keyspace) ReadOnly() bool { return ks.config.Role == RoleRead }

// MayCreate says that tables of Varve's own may be made in the keyspace.
func (ks *Keyspace) MayCreate() bool { return ks.config.Create != CreateNothing && !ks.ReadOnly() }

// note adds to Notes, each once.
func (ks *Keyspace) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(ks.Notes, text) {
		ks.Notes = append(ks.Notes, text)
	}
}

// Stamp is a write timestamp: the clock in milliseconds, but always above the one
// before, since of two writes with equal timestamps a delete wins.
func (ks *Keyspace) Stamp() int64 {
	for {
		last := ks.last.Load()
		next := max(ks.now().UnixMilli(), last+1)
		if ks.last.CompareAndSwap(last, next) {
			return next
		}
	}
}
