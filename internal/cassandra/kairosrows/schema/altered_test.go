package schema

import (
	"errors"
	"strings"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/layout"
	"varve/internal/originals"
)

// TestDroppedColumn: somebody drops a column and adds it again. Cassandra hides what is written to it
// from then on, so the table is not used until it is recreated.
func TestDroppedColumn(t *testing.T) {
	t.Parallel()
	s, ks := daily(t)
	cqltest.Must(t, s, "ALTER TABLE row_keys DROP value", "ALTER TABLE row_keys ADD value text",
		"ALTER TABLE data_points ADD more int", "ALTER TABLE data_points DROP more")
	if err := ks.Confirm(t.Context()); err != nil {
		t.Errorf("columns that are not read: %v", err)
	}
	mustOpen(t, s, nil)

	cqltest.Must(t, s, "ALTER TABLE data_points DROP value", "ALTER TABLE data_points ADD value blob")
	if s, _ := errors.AsType[*layout.ChangedError](ks.Confirm(t.Context())); s == nil || !strings.Contains(s.Error(), "table data_points: its column value was dropped at") {
		t.Errorf("while it is open: %v", s)
	}
	if _, err := openWith(t, s, nil); !errors.As(err, new(*cql.TableError)) {
		t.Errorf("it is opened: %v", err)
	}
	if got := preflightWith(t, s); !strings.Contains(got, "bad tables: its column value was dropped at") {
		t.Errorf("the preflight:\n%s", got)
	}
	cqltest.Must(t, s, "DROP TABLE data_points") // the way out
	mustOpen(t, s, nil)
	if err := ks.Confirm(t.Context()); err != nil {
		t.Errorf("after the table was made again: %v", err)
	}
}

// TestDefaultTTL: the default time to live of a table does not end the life of what Varve writes, and
// the notes tell of it.
func TestDefaultTTL(t *testing.T) {
	t.Parallel()
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	mustOpen(t, s, nil)
	cqltest.Must(t, s, "TRUNCATE spec", "TRUNCATE varve_spec")
	for _, table := range []string{specTable, varveSpecTable, serviceIndexTable} {
		cqltest.Must(t, s, "ALTER TABLE "+table+" WITH default_time_to_live = 1000")
	}
	ks := mustOpen(t, s, nil)
	if err := ks.Set(t.Context(), "service", "service key", "key", "value"); err != nil {
		t.Fatal(err)
	}
	for table, column := range map[string]string{specTable: "value", varveSpecTable: "value", serviceIndexTable: "value"} {
		rows := s.Query(t.Context(), &cql.Statement{Name: "test", Text: "SELECT TTL(" + column + ") FROM " + table})
		n := 0
		var ttl *int
		for ; rows.Scan(&ttl); n++ {
			if ttl != nil {
				t.Errorf("%s: a row lives for %d s", table, *ttl)
			}
		}
		if err := rows.Close(); err != nil || n == 0 {
			t.Errorf("%s: %d rows, %v", table, n, err)
		}
	}
	if notes := strings.Join(ks.Notes, "\n"); !strings.Contains(notes, "table service_index has default_time_to_live = 1000") {
		t.Errorf("notes %q", notes)
	}
}
