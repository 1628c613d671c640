package schema

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/originals"
	"varve/internal/rowtime"
)

func mustOpen(t *testing.T, s *cql.Session, change func(*Config)) *Keyspace {
	t.Helper()
	ks, err := openWith(t, s, change)
	if err != nil {
		t.Fatal(err)
	}
	return ks
}

func openWith(t *testing.T, s *cql.Session, change func(*Config)) (*Keyspace, error) {
	t.Helper()
	config := DefaultConfig()
	if change != nil {
		change(&config)
	}
	ctx, cancel := context.WithTimeout(t.Context(), cqltest.Patience)
	defer cancel()
	return Open(ctx, s, config, nil)
}

// specOf reads the table spec as text.
func specOf(t *testing.T, s *cql.Session) string {
	t.Helper()
	rows := s.Query(t.Context(), &cql.Statement{Name: "spec", Text: "SELECT name, value, WRITETIME(value) FROM spec WHERE spec_type = ?"}, clusterConfig)
	var name, value string
	var stamp int64
	var all []string
	for rows.Scan(&name, &value, &stamp) {
		all = append(all, name+"="+value)
		if now := time.Now().UnixMilli(); stamp < now-3600e3 || stamp > now+3600e3 {
			t.Errorf("row %s of spec is written at %d, which is not now in milliseconds", name, stamp)
		}
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// TestFreshKeyspace: made with all tables, in plain form, with the options asked
// for; opened again, it is as it was, whatever the settings say then.
func TestFreshKeyspace(t *testing.T) {
	s := cqltest.Open(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Drop(t, s)
	create := func(c *Config) {
		c.Create = CreateKeyspace
		c.IndexShards = 7
		c.RowWidth = 86400000
		c.Replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': '1'}"
		c.TableOptions = []string{
			"data_points: compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', 'compaction_window_size': '7', 'timestamp_resolution': 'MILLISECONDS'} AND gc_grace_seconds = 86400",
			"row_keys: WITH gc_grace_seconds = 3600;",
		}
	}
	ks := mustOpen(t, s, create)
	want := Tables{RowKeyIndex: true, RowKeyTimeIndex: true, RowKeys: true, TagIndexedRowKeys: true, StringIndex: true, ServiceIndex: true, Spec: true, Own: true}
	if ks.Tables != want || ks.Spec != (rowtime.Spec{Width: 86400000}) || ks.IndexShards != 7 || len(ks.Notes) != 1 {
		t.Errorf("new keyspace is %+v, %+v, %d shards, notes %q", ks.Tables, ks.Spec, ks.IndexShards, ks.Notes)
	}
	if got := specOf(t, s); got != "row_time_unit=MILLISECONDS row_width=86400000" {
		t.Errorf("spec is %s", got)
	}
	tables, err := s.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := tables["data_points"].Compaction; c["timestamp_resolution"] != "MILLISECONDS" {
		t.Errorf("compaction of data_points is %v", c)
	}
	grace := &cql.Statement{Name: "read_gc_grace", Text: "SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"}
	for table, want := range map[string]int{"data_points": 86400, "row_keys": 3600} {
		var sec int
		if _, err := s.One(t.Context(), grace, []any{ks.Name, table}, &sec); err != nil || sec != want {
			t.Errorf("gc_grace_seconds of %s is %d, want %d: %v", table, sec, want, err)
		}
	}
	again := mustOpen(t, s, func(c *Config) { c.RowTimeUnit = "SECONDS" })
	if again.Tables != want || again.Spec != ks.Spec || again.IndexShards != 7 {
		t.Errorf("opened again it is %+v, %+v, %d shards", again.Tables, again.Spec, again.IndexShards)
	}
}

// TestDefinitions: our tables are those of KairosDB, by what a KairosDB made.
func TestDefinitions(t *testing.T) {
	described, err := fs.ReadFile(kairosrowstest.Files("narrow"), "schema.cql")
	if err != nil {
		t.Fatal(err)
	}
	words := func(s string) string {
		return strings.NewReplacer("((spec_type),", "(spec_type,", "((key),", "(key,", "((metric), table_name", "(metric, table_name", "( ", "(", " )", ")", "IF NOT EXISTS ", "").Replace(strings.Join(strings.Fields(s), " "))
	}
	theirs := kairosrowstest.CreateTables(string(described))
	if len(theirs) != 8 {
		t.Fatalf("KairosDB made %d tables: %q", len(theirs), theirs)
	}
	for _, d := range definitions {
		if d.part == partOwn {
			continue
		}
		ours := words(d.Create("").Text)
		if !slices.ContainsFunc(theirs, func(text string) bool { return words(text) == ours }) {
			t.Errorf("KairosDB makes no such table: %s", ours)
		}
	}
}

var longKeyspaces = flag.Bool("cassandra.long", false, "open all recorded keyspaces, not one")

// TestOpenRecordedKeyspaces: keyspaces of KairosDB open as they are.
func TestOpenRecordedKeyspaces(t *testing.T) {
	for name, want := range map[string]rowtime.Spec{
		"milliseconds": {Width: 1814400000},
		"narrow":       {Width: 3600000},
		"seconds":      {Width: 1814400, Unit: rowtime.Seconds},
	} {
		t.Run(name, func(t *testing.T) {
			if !*longKeyspaces && name != "seconds" {
				t.Skip("run with -cassandra.long")
			}
			s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
			kairosrowstest.Load(t, s, name)
			read := mustOpen(t, s, func(c *Config) { c.Role = RoleRead })
			if read.Spec != want || read.Tables.Own || read.IndexShards != 0 || !read.ReadOnly() {
				t.Errorf("read only: %+v, %+v", read.Spec, read.Tables)
			}
			ks := mustOpen(t, s, nil)
			if ks.Spec != want || !ks.Tables.Own || ks.IndexShards != 4 || len(ks.Notes) > 0 {
				t.Errorf("%+v, %+v, %d shards, notes %q", ks.Spec, ks.Tables, ks.IndexShards, ks.Notes)
			}
			checkRecordedKeys(t, ks)
		})
	}
}

// alone are statements that make what a keyspace of an old version has.
var (
	dataCompact   = "CREATE TABLE data_points (key blob, column1 blob, value blob, PRIMARY KEY (key, column1)) WITH COMPACT STORAGE"
	legacyIndex   = "CREATE TABLE row_key_index (key blob, column1 blob, value blob, PRIMARY KEY (key, column1)) WITH COMPACT STORAGE"
	stringsText   = "CREATE TABLE string_index (key blob, column1 text, value blob, PRIMARY KEY (key, column1)) WITH COMPACT STORAGE"
	stringsBlob   = "CREATE TABLE string_index (key blob, column1 blob, value blob, PRIMARY KEY (key, column1))"
	betaRowTimes  = "CREATE TABLE row_key_time_index (metric text, row_time timestamp, value text, PRIMARY KEY (metric, row_time))"
	betaRowKeys   = "CREATE TABLE row_keys (metric text, row_time timestamp, data_type text, tags frozen<map<text, text>>, value text, PRIMARY KEY ((metric, row_time), data_type, tags))"
	betaService   = "CREATE TABLE service_index (service text, service_key text, key text, value text, PRIMARY KEY (service, service_key, key))"
	specOnly      = "CREATE TABLE spec (spec_type text, name text, value text, PRIMARY KEY (spec_type, name))"
	windowsMicros = "CREATE TABLE data_points (key blob, column1 blob, value blob, PRIMARY KEY (key, column1)) WITH compaction = {'class': 'TimeWindowCompactionStrategy'}"
	otherTable    = "CREATE TABLE somebody_elses (a int PRIMARY KEY)"
)

func TestOldKeyspaces(t *testing.T) {
	address := originals.Cassandra(t)
	name := cql.Statement{Name: "put", Text: "INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)"}
	for _, c := range []struct {
		name   string
		tables []string
		metric any      // put into string_index
		spec   []string // row_time_unit, row_width: put into spec
		config func(*Config)

		want   string // of the keyspace opened
		refuse string // or in the error
	}{
		{name: "of Thrift", tables: []string{dataCompact, legacyIndex, stringsBlob, otherTable}, metric: []byte("m"),
			config: func(c *Config) { c.RowTimeUnit = "SECONDS" },
			want:   "LEGACY 1814400000 compact blob spec:row_time_unit=LEGACY row_width=1814400000"},
		{name: "of Thrift, without metrics", tables: []string{dataCompact, legacyIndex, stringsText},
			want: "MILLISECONDS 1814400000 compact spec:row_time_unit=MILLISECONDS row_width=1814400000"},
		{name: "unit without width", tables: []string{specOnly, stringsText}, metric: "m", spec: []string{"MILLISECONDS", ""},
			config: func(c *Config) { c.RowWidth = 3600000 },
			want:   "MILLISECONDS 3600000 spec:row_time_unit=MILLISECONDS row_width=3600000"},
		{name: "another unit of Java", tables: []string{specOnly, dataCompact}, spec: []string{"HOURS", "5000"}, config: func(c *Config) { c.Role = RoleRead },
			want: "MILLISECONDS 5000 compact spec:row_time_unit=HOURS row_width=5000"},
		{name: "time windows", tables: []string{windowsMicros, specOnly}, spec: []string{"LEGACY", "1814400000"}, config: func(c *Config) { c.Role = RoleRead },
			want: "LEGACY 1814400000 spec:row_time_unit=LEGACY row_width=1814400000 note:table data_points is compacted"},
		{name: "unit is nonsense", tables: []string{specOnly, dataCompact}, config: func(c *Config) { c.Role = RoleRead }, spec: []string{"FORTNIGHTS", "1"}, refuse: `table spec: its rows are invalid: row_time_unit "FORTNIGHTS"`},
		{name: "width is nonsense", tables: []string{specOnly, dataCompact}, config: func(c *Config) { c.Role = RoleRead }, spec: []string{"MILLISECONDS", "three weeks"}, refuse: `row_width "three weeks"`},
		{name: "width is too large", tables: []string{specOnly, dataCompact}, config: func(c *Config) { c.Role = RoleRead }, spec: []string{"MILLISECONDS", "4000000000"}, refuse: "row_width 4000000000: want 1 to 2147483648"},
		{name: "beta of 1.2", tables: []string{dataCompact, stringsBlob, betaRowTimes, betaRowKeys, betaService}, metric: []byte("m"), refuse: "a beta of KairosDB 1.2.0 created it"},
		{name: "not KairosDB's", tables: []string{"CREATE TABLE data_points (a int PRIMARY KEY)"}, refuse: "it is not KairosDB's table of that name"},
		{name: "nothing to create", tables: []string{dataCompact}, config: func(c *Config) { c.Create = CreateNothing }, refuse: "tables are missing: spec"},
		{name: "read, no spec table", tables: []string{dataCompact, legacyIndex, stringsText}, metric: "m", config: func(c *Config) { c.Role = RoleRead },
			want: "LEGACY 1814400000 compact note:spec has no rows; taken as LEGACY"},
		{name: "read, no spec rows", tables: []string{dataCompact, specOnly, stringsText}, metric: "m", config: func(c *Config) { c.Role = RoleRead },
			want: "MILLISECONDS 1814400000 compact spec: note:spec has no rows; taken as MILLISECONDS"},
		{name: "read, empty", config: func(c *Config) { c.Role = RoleRead }, refuse: "not a keyspace of KairosDB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := cqltest.Keyspace(t, cqltest.Config(address), cql.Options{})
			cqltest.Must(t, s, c.tables...)
			if c.metric != nil {
				if err := s.Exec(t.Context(), &name, 1, []byte(MetricNames), c.metric, []byte{0}); err != nil {
					t.Fatal(err)
				}
			}
			for i, row := range []string{specUnit, specWidth} {
				if c.spec != nil && c.spec[i] != "" {
					if err := s.Exec(t.Context(), writeSpec, time.Now().UnixMilli(), clusterConfig, row, c.spec[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			ks, err := openWith(t, s, c.config)
			if c.refuse != "" {
				var refused *cql.TableError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.refuse) {
					t.Fatalf("opening: %v, want an error with %q", err, c.refuse)
				}
				t.Log(err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%s %d", ks.Spec.Unit, ks.Spec.Width)
			if found, err := s.Tables(t.Context()); err != nil || found[DataPoints].Compact() {
				got += " compact"
			}
			if ks.Tables.StringIndexBlob {
				got += " blob"
			}
			if ks.Tables.Spec {
				got += " spec:" + specOf(t, s)
			}
			if i := strings.Index(c.want, " note:"); i >= 0 {
				if len(ks.Notes) != 1 || !strings.HasPrefix(ks.Notes[0], c.want[i+len(" note:"):]) {
					t.Errorf("notes are %q", ks.Notes)
				}
				c.want = c.want[:i]
			}
			if got != c.want {
				t.Errorf("keyspace is %s, want %s", got, c.want)
			}
			if ks.ReadOnly() {
				return
			}
			again := mustOpen(t, s, nil)
			if again.Spec != ks.Spec || again.Tables != ks.Tables {
				t.Errorf("opened again it is %+v, %+v", again.Spec, again.Tables)
			}
		})
	}
}

// TestOpenedAtOnce: several nodes that find an empty cluster, with settings that
// differ, agree.
func TestOpenedAtOnce(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	var wg sync.WaitGroup
	opened := make([]*Keyspace, 4)
	for i := range opened {
		s := cqltest.Open(t, config, cql.Options{})
		if i == 0 {
			cqltest.Drop(t, s)
		}
		wg.Go(func() {
			var err error
			opened[i], err = openWith(t, s, func(c *Config) {
				c.Create = CreateKeyspace
				c.RowWidth = int64(i+1) * 3600000
				c.IndexShards = i + 1
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, ks := range opened {
		if ks.Spec != opened[0].Spec || ks.IndexShards != opened[0].IndexShards || ks.Tables != opened[0].Tables {
			t.Errorf("one opened %+v, %d shards, another %+v, %d shards", opened[0].Spec, opened[0].IndexShards, ks.Spec, ks.IndexShards)
		}
	}
}

func TestNoKeyspace(t *testing.T) {
	s := cqltest.Open(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	_, err := openWith(t, s, func(c *Config) { c.Create = CreateTables })
	var refused *cql.TableError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "cassandra.schema.create: keyspace") {
		t.Errorf("opening no keyspace: %v", err)
	}
	_, err = openWith(t, s, func(c *Config) {
		c.Create, c.Replication = CreateKeyspace, "{'class': 'NetworkTopologyStrategy', 'atlantis': '3'}"
	})
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "see cassandra.schema.replication") {
		t.Errorf("replicas in no data centre: %v", err)
	}
	t.Log(err)
}

// TestKeyspaceByDefault: on a cluster without the keyspace it is made, with copies for
// the nodes that there are, and everybody is told.
func TestKeyspaceByDefault(t *testing.T) {
	s := cqltest.Open(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Drop(t, s)
	var told []string
	ks, err := Open(t.Context(), s, DefaultConfig(), func(doing string) { told = append(told, doing) })
	if err != nil {
		t.Fatal(err)
	}
	if len(ks.Notes) != 1 || !strings.Contains(ks.Notes[0], "{'class': 'NetworkTopologyStrategy', 'datacenter1': '1'}") || !strings.Contains(ks.Notes[0], "cassandra.schema.replication") {
		t.Errorf("notes are %q", ks.Notes)
	}
	for _, doing := range []string{"creating keyspace " + ks.Name, "creating table data_points in keyspace " + ks.Name} {
		if !slices.Contains(told, doing) {
			t.Errorf("told %q, not %q", told, doing)
		}
	}
	if again, err := Open(t.Context(), s, DefaultConfig(), nil); err != nil || len(again.Notes) != 0 {
		t.Errorf("opened again: %v, notes %q", err, again.Notes)
	}
}

func TestReplicationOf(t *testing.T) {
	nodes := func(of ...string) (all []cql.Node) {
		for _, name := range of {
			all = append(all, cql.Node{Datacenter: name})
		}
		return all
	}
	for _, c := range []struct {
		nodes []cql.Node
		own   string
		want  string
	}{
		{nodes("a"), "", "'a': '1'"},
		{nodes("a", "a", "a", "a", "a"), "", "'a': '3'"},
		{nodes("a", "b", "b"), "b", "'b': '2'"},
	} {
		if got, _ := replicationOf(c.nodes, c.own); got != "{'class': 'NetworkTopologyStrategy', "+c.want+"}" {
			t.Errorf("%v, in %q: %s", c.nodes, c.own, got)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Config){
		"role":              func(c *Config) { c.Role = "x" },
		"create:":           func(c *Config) { c.Create = "all" },
		"replication":       func(c *Config) { c.Create, c.Replication = CreateKeyspace, "3" },
		"one of the tables": func(c *Config) { c.TableOptions = []string{"points: gc_grace_seconds = 1"} },
		"COMPACT STORAGE":   func(c *Config) { c.TableOptions = []string{"data_points: WITH COMPACT STORAGE"} },
		"'MILLISECONDS'": func(c *Config) {
			c.TableOptions = []string{"data_points: compaction = {'class': 'TimeWindowCompactionStrategy'}"}
		},
		"semicolon": func(c *Config) { c.TableOptions = []string{"data_points: a = 1; DROP TABLE x"} },
		"second line": func(c *Config) {
			c.TableOptions = []string{"spec: gc_grace_seconds = 1", "spec: comment = 'x'"}
		},
		"row_time_unit": func(c *Config) { c.RowTimeUnit = "LEGACY" },
		"row_width":     func(c *Config) { c.RowWidth = 1 << 40 },
		"index_shards":  func(c *Config) { c.IndexShards = 65 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v", want, err)
		}
	}
	seconds := Config{RowTimeUnit: "SECONDS"}
	if s := seconds.spec(); s.Width != 1814400 || s.WidthMS() != 1814400000 {
		t.Errorf("default of seconds is %+v", s)
	}
}

func TestStamps(t *testing.T) {
	now := time.UnixMilli(1000)
	ks := &Keyspace{now: func() time.Time { return now }}
	if a, b := ks.Stamp(), ks.Stamp(); a != 1000 || b != 1001 {
		t.Errorf("stamps are %d, %d", a, b)
	}
	now = time.UnixMilli(5000)
	if a := ks.Stamp(); a != 5000 {
		t.Errorf("stamp is %d", a)
	}
}
