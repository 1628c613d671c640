package kairosrowstest

import (
	"flag"
	"strings"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

var long = flag.Bool("cassandra.long", false, "load all recorded keyspaces, not one")

// TestLoad: what was loaded has as many rows as the dump, and write times in
// milliseconds.
func TestLoad(t *testing.T) {
	address := originals.Cassandra(t)
	names := Names[:1]
	if *long {
		names = Names
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			s := cqltest.Keyspace(t, cqltest.Config(address), cql.Options{})
			Load(t, s, name)
			tables, err := s.Tables(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if compact := tables["data_points"].Compact(); compact != (name != "narrow") {
				t.Errorf("data_points is compact: %v", compact)
			}
			for table := range tables {
				dump, err := recorded.ReadFile("testdata/" + name + "/" + table + ".jsonl")
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				rows := s.Query(t.Context(), &cql.Statement{Name: "count", Text: "SELECT value FROM " + table, Scan: true})
				for rows.Scan(nil) {
					n++
				}
				if err := rows.Close(); err != nil {
					t.Fatal(err)
				}
				if want := strings.Count(string(dump), "\n"); n != want {
					t.Errorf("%s has %d rows, want %d", table, n, want)
				}
			}
			var stamp int64
			newest := &cql.Statement{Name: "stamp", Text: "SELECT writetime(value) FROM data_points LIMIT 1", Scan: true}
			if ok, err := s.One(t.Context(), newest, nil, &stamp); !ok || err != nil || stamp < 1e12 || stamp > 1e13 {
				t.Errorf("write time is %d, %v, %v", stamp, ok, err)
			}
		})
	}
}
