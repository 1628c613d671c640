package schema

import (
	"strings"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

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
