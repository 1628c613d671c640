package cql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Definition says how Varve creates a table, and which forms of it Varve can use.
type Definition struct {
	Name    string
	Columns []Column // keys first, in their order
	Order   string   // of the clustering columns, if it is not ascending: "time DESC, id DESC"
	Options string   // further options, as CQL writes them after WITH

	// Also has other acceptable types of columns, by name of the column.
	Also map[string]string
}

// KeyColumn is a column of the partition key.
func KeyColumn(name, typ string) Column { return Column{Name: name, Type: typ, Kind: "partition_key"} }

// OrderColumn is a clustering column.
func OrderColumn(name, typ string) Column { return Column{Name: name, Type: typ, Kind: "clustering"} }

// StaticColumn is a column of a whole partition.
func StaticColumn(name, typ string) Column { return Column{Name: name, Type: typ, Kind: "static"} }

// PlainColumn is a column that is not part of a key.
func PlainColumn(name, typ string) Column { return Column{Name: name, Type: typ, Kind: "regular"} }

func (d Definition) keys(kind string) []string { return Table{Columns: d.Columns}.Keys(kind) }

// Create returns the statement that creates the table, with the given options in addition to
// its own.
func (d Definition) Create(options string) *Statement {
	var columns []string
	for _, c := range d.Columns {
		text := c.Name + " " + c.Type
		if c.Kind == "static" {
			text += " static"
		}
		columns = append(columns, text)
	}
	partition := "(" + strings.Join(d.keys("partition_key"), ", ") + ")"
	key := strings.Join(append([]string{partition}, d.keys("clustering")...), ", ")
	text := "CREATE TABLE IF NOT EXISTS " + d.Name + " (" + strings.Join(columns, ", ") + ", PRIMARY KEY (" + key + "))"
	var with []string
	if d.Order != "" {
		with = append(with, "CLUSTERING ORDER BY ("+d.Order+")")
	}
	for _, o := range []string{d.Options, options} {
		if o != "" {
			with = append(with, o)
		}
	}
	if len(with) > 0 {
		text += " WITH " + strings.Join(with, " AND ")
	}
	return &Statement{Name: "create_table", Text: text}
}

// Check returns why an existing table cannot be used, "" if it can. Unknown regular columns are
// ignored.
func (d Definition) Check(t Table) string {
	for _, kind := range []string{"partition_key", "clustering"} {
		want := d.keys(kind)
		if got := t.Keys(kind); !slices.Equal(got, want) {
			return fmt.Sprintf("its %s is (%s), not (%s)", strings.ReplaceAll(kind, "_", " "), strings.Join(got, ", "), strings.Join(want, ", "))
		}
	}
	for _, want := range d.Columns {
		got, ok := t.Column(want.Name)
		if !ok {
			return "it has no column " + want.Name
		}
		if got.Type != want.Type && (d.Also[want.Name] == "" || got.Type != d.Also[want.Name]) {
			return fmt.Sprintf("its column %s is of type %s, not %s", want.Name, got.Type, want.Type)
		}
		if want.Kind == "static" && got.Kind != "static" {
			return fmt.Sprintf("its column %s is not static", want.Name)
		}
	}
	return ""
}

// A TableError says why a keyspace or a table cannot be used as it is, and what to do.
type TableError struct {
	Keyspace        string
	Table           string // empty if it concerns the whole keyspace
	Problem, WayOut string
	Err             error // cause, may be nil
}

func (e *TableError) Error() string {
	s := "keyspace " + e.Keyspace
	if e.Table != "" {
		s += ", table " + e.Table
	}
	s += ": " + e.Problem
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s + ": " + e.WayOut
}

func (e *TableError) Unwrap() error { return e.Err }

// MakeTables makes sure that Varve's own tables exist in a form that it can use; it creates
// missing ones if create is set. page is the page of the documentation that has their
// definitions. In addition to errors of the session it may return a *TableError.
func (s *Session) MakeTables(ctx context.Context, create bool, page string, definitions ...Definition) error {
	// One at a time: while a table is being created, its rows in system_schema are there before the
	// node knows the table.
	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	found, err := s.Tables(ctx)
	if err != nil {
		return err
	}
	for _, d := range definitions {
		fault := &TableError{Keyspace: s.KeyspaceName(), Table: d.Name}
		t, ok := found[d.Name]
		switch {
		case ok:
			fault.Problem, fault.WayOut = d.Check(t), "it is not a table of this version of Varve; rename or drop it"
		case !create:
			fault.Problem, fault.WayOut = "it is missing", "set cassandra.schema.create to tables, or create it by hand as "+page+" says"
		default:
			err := s.Change(ctx, d.Create(""))
			if err != nil && !errors.As(err, new(*RefusedError)) {
				return err
			}
			if err != nil {
				fault.Problem, fault.Err = "it is missing and cannot be created", err
				fault.WayOut = "create it by hand as " + page + " says, or grant the user the right to create it"
			}
		}
		if fault.Problem != "" {
			return fault
		}
	}
	return nil
}
