package cql_test

import (
	"strings"
	"sync"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// TestTablesAreMadeByOneAtATime: nobody takes a table for present while another goroutine creates it.
// Cassandra shows its rows before it knows the table.
func TestTablesAreMadeByOneAtATime(t *testing.T) {
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	s := cqltest.Keyspace(t, cqltest.Config(node.Address), cql.Options{})
	var mu sync.Mutex
	var looks, before int
	created := false
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		mu.Lock()
		defer mu.Unlock()
		switch text := r.Statements[0].Text; {
		case strings.Contains(text, "FROM system_schema.tables"):
			looks++
		case strings.HasPrefix(text, "CREATE TABLE"):
			created = true
		case strings.Contains(text, "schema_version") && !created:
			before = looks // the change is about to begin
		}
		return nil
	})
	d := cql.Definition{Name: "things", Columns: []cql.Column{cql.KeyColumn("id", "text"), cql.PlainColumn("v", "text")}}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := s.MakeTables(t.Context(), true, "page", d); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if !created || looks != 8 || before != 1 {
		t.Errorf("created %t, %d looked, %d of them before the table was created, want 8 and 1", created, looks, before)
	}
}
