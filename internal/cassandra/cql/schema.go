package cql

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/store"
	"varve/internal/work"
)

// schemaAgreement is how long all nodes may take to agree on a change.
var schemaAgreement = 20 * time.Second

// Column is a column of a table.
type Column struct {
	Name     string
	Type     string // as CQL writes it, for example frozen<map<text, text>>
	Kind     string // partition_key, clustering, static or regular
	Position int    // among the key columns of its kind
}

// Table is a table of the keyspace.
type Table struct {
	Name    string
	Flags   []string
	Columns []Column // keys first, in their order

	Compaction    map[string]string
	DefaultTTLSec int // default_time_to_live
}

// Compact reports whether the table was created WITH COMPACT STORAGE, or over Thrift.
func (t Table) Compact() bool {
	return !slices.Contains(t.Flags, "compound") || slices.Contains(t.Flags, "dense") || slices.Contains(t.Flags, "super")
}

// Column finds a column.
func (t Table) Column(name string) (Column, bool) {
	i := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return Column{}, false
	}
	return t.Columns[i], true
}

// Keys lists the names of the columns of a kind, in their order.
func (t Table) Keys(kind string) []string {
	var names []string
	for _, c := range t.Columns {
		if c.Kind == kind {
			names = append(names, c.Name)
		}
	}
	return names
}

var (
	readTables = &Statement{Name: "read_tables",
		Text: "SELECT table_name, flags, compaction, default_time_to_live FROM system_schema.tables WHERE keyspace_name = ?"}
	readColumns = &Statement{Name: "read_columns",
		Text: "SELECT table_name, column_name, type, kind, position FROM system_schema.columns WHERE keyspace_name = ?"}
)

// Tables reads the tables of the keyspace, by name. It is empty if there is no
// such keyspace.
func (s *Session) Tables(ctx context.Context) (map[string]Table, error) {
	tables := make(map[string]Table)
	rows := s.Query(ctx, readTables, s.config.Keyspace)
	for {
		var t Table
		if !rows.Scan(&t.Name, &t.Flags, &t.Compaction, &t.DefaultTTLSec) {
			break
		}
		tables[t.Name] = t
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	rows = s.Query(ctx, readColumns, s.config.Keyspace)
	var table string
	var c Column
	for rows.Scan(&table, &c.Name, &c.Type, &c.Kind, &c.Position) {
		if t, ok := tables[table]; ok {
			t.Columns = append(t.Columns, c)
			tables[table] = t
		}
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	for _, t := range tables {
		slices.SortFunc(t.Columns, compareColumns)
	}
	return tables, nil
}

// A DroppedColumn was removed from a table, which may have a column of the same name again.
type DroppedColumn struct {
	Table, Name string
	At          time.Time // values with an earlier write timestamp, or this one, are hidden for ever
}

var readDropped = &Statement{Name: "read_dropped_columns",
	Text: "SELECT table_name, column_name, dropped_time FROM system_schema.dropped_columns WHERE keyspace_name = ?"}

// DroppedColumns reads which columns were removed from the tables of the keyspace.
func (s *Session) DroppedColumns(ctx context.Context) ([]DroppedColumn, error) {
	rows := s.Query(ctx, readDropped, s.config.Keyspace)
	var all []DroppedColumn
	var c DroppedColumn
	var at Millis
	for rows.Scan(&c.Table, &c.Name, &at) {
		c.At = time.UnixMilli(at.MS)
		all = append(all, c)
	}
	return all, rows.Close()
}

var kindOrder = []string{"partition_key", "clustering", "static", "regular"}

func compareColumns(a, b Column) int {
	return cmp.Or(slices.Index(kindOrder, a.Kind)-slices.Index(kindOrder, b.Kind), a.Position-b.Position, strings.Compare(a.Name, b.Name))
}

// Change executes a statement that changes the schema, and waits until all nodes agree. All
// sessions that see the same nodes send their changes to the same node, which executes them one
// after the other: if two Cassandra nodes create the same table at once, two tables result. A
// node must also not create a table that already exists but is unknown to it: data in the first
// table would be lost. So all nodes must agree before the change, too.
func (s *Session) Change(ctx context.Context, st *Statement) error {
	timeout := max(s.config.ScanTimeout, schemaAgreement+5*time.Second)
	return s.do(ctx, call{st: st, kind: writes, size: len(st.Text), timeout: timeout, pinned: true, run: func(ctx context.Context, d *gocql.Session) error {
		id := first(d.GetHosts())
		if err := agree(ctx, d); err != nil {
			return err
		}
		q := d.Query(st.Text).Consistency(s.levels[writes][Configured]).Idempotent(true)
		if id != "" {
			q = q.SetHostID(id)
		}
		if err := q.ExecContext(ctx); err != nil {
			return err
		}
		return agree(ctx, d)
	}})
}

// first returns the id of the node to which schema changes are sent.
func first(all []*gocql.HostInfo) string {
	id := ""
	for _, h := range all {
		if h.IsUp() && (id == "" || h.HostID() < id) {
			id = h.HostID()
		}
	}
	return id
}

// agree waits until all nodes that are up have the same schema. It asks every node for its own:
// a node that has just started reports the schemas that other nodes had before it stopped. (The
// driver's own wait includes nodes that are down, and may use a broken connection.) More than
// half of the ring's nodes must be up. Otherwise, nodes that start later could create a table
// again that was created while one node was alone, which would replace it and everything written
// into it.
func agree(ctx context.Context, d *gocql.Session) error {
	for end := time.Now().Add(schemaAgreement); ; {
		versions := make(map[string]bool)
		all, up := d.GetHosts(), 0
		for _, h := range all {
			if h.IsUp() {
				versions[ownSchema(ctx, d, h)] = true
				up++
			}
		}
		enough := 2*up > len(all)
		if len(versions) <= 1 && enough {
			return nil
		}
		if time.Now().After(end) || work.Pause(ctx, 100*time.Millisecond) != nil {
			if !enough {
				return &disagreement{fmt.Sprintf("after %v only %d of %d nodes are up, and more than half are needed", schemaAgreement, up, len(all))}
			}
			return &disagreement{fmt.Sprintf("after %v nodes still have %d different schemas: %s",
				schemaAgreement, len(versions), strings.Join(slices.Sorted(maps.Keys(versions)), ", "))}
		}
	}
}

// ownSchema asks a node for its schema. A node that does not answer counts as having a
// different schema.
func ownSchema(ctx context.Context, d *gocql.Session, h *gocql.HostInfo) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var version string
	q := d.Query("SELECT schema_version FROM system.local WHERE key = 'local'").Consistency(gocql.One).Idempotent(true).DefaultTimestamp(false).SetHostID(h.HostID())
	if err := q.ScanContext(ctx, &version); err != nil {
		return "unknown of " + h.ConnectAddress().String()
	}
	return version
}

// A disagreement means that the nodes did not agree on the schema in time.
type disagreement struct{ text string }

func (d *disagreement) Error() string { return d.text }

// CreateKeyspace creates the keyspace unless it exists; replication is a map in CQL. It
// waits until the session uses it.
func (s *Session) CreateKeyspace(ctx context.Context, replication string) error {
	st := &Statement{Name: "create_keyspace", Text: fmt.Sprintf(`CREATE KEYSPACE IF NOT EXISTS %q WITH replication = %s`, s.config.Keyspace, replication)}
	if err := s.Change(ctx, st); err != nil {
		return err
	}
	select {
	case s.created <- struct{}{}:
	default:
	}
	return s.WaitKeyspace(ctx)
}

// WaitKeyspace waits until the session uses the keyspace.
func (s *Session) WaitKeyspace(ctx context.Context) error {
	for {
		if s.State().Keyspace {
			return nil
		}
		if s.closed() {
			return store.ErrClosed
		}
		if work.Pause(ctx, 50*time.Millisecond) != nil {
			return &store.UnavailableError{Reason: fmt.Sprintf("cassandra has no keyspace %s", s.config.Keyspace), Err: context.Cause(ctx)}
		}
	}
}
