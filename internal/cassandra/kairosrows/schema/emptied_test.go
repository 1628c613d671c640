package schema

import (
	"errors"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/layout"
	"varve/internal/originals"
	"varve/internal/rowtime"
)

var putName = &cql.Statement{Name: "put_name", Text: "INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)"}

// daily makes a keyspace with rows of a day and one metric, and opens it.
func daily(t *testing.T) (*cql.Session, *Keyspace) {
	t.Helper()
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	ks := mustOpen(t, s, func(c *Config) { c.RowWidth, c.IndexShards = 86400000, 7 })
	if err := s.Exec(t.Context(), putName, 1, []byte(MetricNames), "m", []byte{0}); err != nil {
		t.Fatal(err)
	}
	return s, ks
}

func preflightWith(t *testing.T, s *cql.Session) string {
	t.Helper()
	config := cqltest.Config(originals.Cassandra(t))
	config.Keyspace = s.KeyspaceName()
	return preflightOf(t, config)
}

const dailySpec = "row_time_unit=MILLISECONDS row_width=86400000"

// TestEmptiedSpec: a keyspace whose table spec is emptied while no server runs is not
// taken for one that was made before KairosDB 1.3.
func TestEmptiedSpec(t *testing.T) {
	t.Parallel()
	s, _ := daily(t)
	cqltest.Must(t, s, "TRUNCATE spec")
	if ks := mustOpen(t, s, func(c *Config) { c.Role = RoleRead }); ks.Spec != (rowtime.Spec{Width: 86400000}) {
		t.Errorf("read only it is %+v", ks.Spec)
	}
	if got := preflightWith(t, s); !strings.Contains(got, "ok rows: unit MILLISECONDS, width 86400000") {
		t.Errorf("the preflight:\n%s", got)
	}
	ks := mustOpen(t, s, nil)
	if ks.Spec != (rowtime.Spec{Width: 86400000}) || len(ks.Notes) != 1 || !strings.Contains(ks.Notes[0], "spec lacked rows") {
		t.Errorf("it is %+v, notes %q", ks.Spec, ks.Notes)
	}
	if got := specOf(t, s); got != dailySpec {
		t.Errorf("spec is %s", got)
	}

	// KairosDB was there first.
	if err := s.Exec(t.Context(), writeSpec, time.Now().UnixMilli()+1, clusterConfig, specUnit, "LEGACY"); err != nil {
		t.Fatal(err)
	}
	var refused *cql.TableError
	if _, err := openWith(t, s, nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "row_time_unit is LEGACY, and varve_spec has MILLISECONDS") {
		t.Errorf("a keyspace whose spec was emptied and filled again is opened: %v", err)
	}
	cqltest.Must(t, s, "DELETE FROM varve_spec WHERE name = 'row_time_unit'") // the way out
	if ks := mustOpen(t, s, nil); ks.Spec.Unit != rowtime.Legacy {
		t.Errorf("it is %+v", ks.Spec)
	}

	// No copy, as servers of before left none.
	cqltest.Must(t, s, "DELETE FROM varve_spec WHERE name = 'row_time_unit'", "TRUNCATE spec")
	if got := preflightWith(t, s); !strings.Contains(got, "bad rows: its rows are gone") {
		t.Errorf("the preflight:\n%s", got)
	}
	if _, err := openWith(t, s, nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "its rows are gone") {
		t.Errorf("without a copy, it is opened: %v", err)
	}
	cqltest.Must(t, s, "TRUNCATE varve_spec") // as KairosDB would find it
	if got := preflightWith(t, s); !strings.Contains(got, "warn rows: table spec has no row_time_unit although there are metrics") {
		t.Errorf("the preflight:\n%s", got)
	}
}

// TestConfirm: what says how rows are placed is put back where tables were emptied, and a
// keyspace in which it is another one is refused until it is as before.
func TestConfirm(t *testing.T) {
	t.Parallel()
	s, ks := daily(t)
	for _, emptied := range [][]string{{"TRUNCATE spec"}, {"TRUNCATE varve_spec"}, {"TRUNCATE spec", "TRUNCATE varve_spec"}} {
		cqltest.Must(t, s, emptied...)
		if err := ks.Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := specOf(t, s); got != dailySpec {
			t.Errorf("%v: spec is %s", emptied, got)
		}
		if again := mustOpen(t, s, nil); again.Spec != ks.Spec || again.IndexShards != 7 {
			t.Errorf("%v: opened again it is %+v, %d shards", emptied, again.Spec, again.IndexShards)
		}
	}
	stamp := time.Now().UnixMilli() + 10
	set := func(name, value string) {
		t.Helper()
		stamp++
		if err := s.Exec(t.Context(), writeSpec, stamp, clusterConfig, name, value); err != nil {
			t.Fatal(err)
		}
	}
	changed := func(what string) {
		t.Helper()
		var changed *layout.ChangedError
		if err := ks.Confirm(t.Context()); !errors.As(err, &changed) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want one with %q", err, what)
		}
	}
	set(specUnit, "SECONDS")
	changed("row_time_unit is SECONDS, and was MILLISECONDS when the server opened the keyspace")
	set(specUnit, "MILLISECONDS")
	if err := ks.Confirm(t.Context()); err != nil {
		t.Errorf("put back: %v", err)
	}

	// Another server makes the keyspace: it has decided, and not written yet.
	cqltest.Must(t, s, "TRUNCATE spec", "UPDATE varve_spec SET value = '3600000' WHERE name = 'row_width'")
	changed("row_width is 3600000, and was 86400000")
	cqltest.Must(t, s, "TRUNCATE spec", "TRUNCATE varve_spec", "INSERT INTO varve_spec (name, value) VALUES ('index_shards', '2')")
	changed("index_shards is 2, and was 7")
}

// TestTablesAdded: a keyspace that is only read was opened before it had all tables. Once they are
// there, it is refused, since nothing would ask them; opened again it is read with them.
func TestTablesAdded(t *testing.T) {
	t.Parallel()
	for name, first := range map[string][]string{
		"before 1.2":             {dataCompact, legacyIndex},
		"while it is being made": {specOnly, dataCompact},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
			cqltest.Must(t, s, first...)
			read := func(c *Config) { c.Role = RoleRead }
			ks := mustOpen(t, s, read)
			if err := ks.Confirm(t.Context()); err != nil {
				t.Errorf("unchanged: %v", err)
			}
			mustOpen(t, s, nil) // creates the other tables
			var changed *layout.ChangedError
			if err := ks.Confirm(t.Context()); !errors.As(err, &changed) || !strings.Contains(err.Error(), "tables were added") || !strings.Contains(err.Error(), "row_keys, tag_indexed_row_keys, row_key_time_index") {
				t.Errorf("tables were added: %v", err)
			}
			if err := mustOpen(t, s, read).Confirm(t.Context()); err != nil {
				t.Errorf("opened again: %v", err)
			}
		})
	}
}
