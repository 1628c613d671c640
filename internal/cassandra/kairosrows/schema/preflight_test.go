package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/originals"
)

// text renders findings for comparison with what is wanted.
func text(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s %s: %s -> %s\n", f.Grade, f.What, f.Text, f.Do)
	}
	return b.String()
}

// TestReplicationFindings holds what an operator is told of replication and
// consistency.
func TestReplicationFindings(t *testing.T) {
	simple := func(n string) map[string]string {
		return map[string]string{"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": n}
	}
	network := func(pairs ...string) map[string]string {
		m := map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy"}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	one, two := map[string]int{"dc1": 3}, map[string]int{"dc1": 3, "dc2": 3}
	for _, tc := range []struct {
		replication       map[string]string
		datacenters       map[string]int
		own, reads, write string
		want              string // begin of the only line, or a part
	}{
		{simple("3"), one, "", "LOCAL_QUORUM", "LOCAL_QUORUM", "ok replication: 3 replicas"},
		{network("dc1", "3"), one, "", "LOCAL_QUORUM", "LOCAL_QUORUM", "ok replication: 3 replicas"},
		{simple("3"), one, "", "ONE", "QUORUM", "warn replication: 3 replicas: a read at ONE (1) may miss"},
		{simple("3"), one, "", "ONE", "ALL", "ok replication"},
		{simple("1"), one, "", "LOCAL_QUORUM", "LOCAL_QUORUM", "warn replication: one replica"},
		{simple("2"), one, "", "QUORUM", "QUORUM", "warn replication: two replicas"},
		{simple("3"), map[string]int{"dc1": 1}, "", "QUORUM", "QUORUM", "bad replication: 3 replicas are configured; nodes for them: 1"},
		{simple("1"), one, "", "TWO", "ONE", "bad replication: cassandra.read_consistency TWO needs 2"},
		{simple("3"), two, "dc1", "LOCAL_QUORUM", "LOCAL_QUORUM", "bad replication: SimpleStrategy"},
		{network("dc1", "3"), two, "dc2", "LOCAL_QUORUM", "LOCAL_QUORUM", "bad replication: no replica is in data centre dc2"},
		{network("dc1", "3", "dc2", "3"), two, "dc1", "LOCAL_QUORUM", "LOCAL_QUORUM", "ok replication: 3 replicas"},
		{network("dc1", "3", "dc2", "3"), two, "dc1", "LOCAL_ONE", "LOCAL_QUORUM", "warn replication: 3 replicas: a read at LOCAL_ONE"},
		{network("dc1", "3", "dc2", "3"), two, "dc1", "LOCAL_QUORUM", "QUORUM", "warn replication: 6 replicas"},
		{network("dc1", "3", "dc2", "3"), two, "dc1", "QUORUM", "QUORUM", "ok replication: 6 replicas"},
	} {
		c := cql.DefaultConfig()
		c.Datacenter, c.ReadConsistency, c.WriteConsistency = tc.own, tc.reads, tc.write
		if got := text(replicationFindings(tc.replication, tc.datacenters, c)); !strings.Contains(got, tc.want) {
			t.Errorf("%v in %v, %s and %s: %s, want %s", tc.replication, tc.datacenters, tc.reads, tc.write, got, tc.want)
		}
	}
}

func TestReplicationText(t *testing.T) {
	got := replicationText(map[string]string{"dc2": "2", "class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"})
	if want := "{'class': 'NetworkTopologyStrategy', 'dc1': '3', 'dc2': '2'}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestClockFindings(t *testing.T) {
	got := text(clockFindings([]cql.Clock{
		{Address: "a", Up: true, Ahead: time.Millisecond}, {Address: "b"}, {Address: "c", Up: true, Err: errors.New("no")}, {Address: "d", Up: true, Ahead: -time.Minute},
	}))
	for _, want := range []string{"warn node: b is down", "warn node: c does not answer: no", "bad clocks: of 4 nodes, d has the clock that differs most from this machine's: by -1m0s"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got, want := text(clockFindings([]cql.Clock{{Address: "a", Up: true, Ahead: time.Millisecond}})), "ok clocks: the clock of a differs from this machine's by 1ms (+- 0s)"; !strings.Contains(got, want) {
		t.Errorf("one node: %s, want %s", got, want)
	}
	for ahead, grade := range map[time.Duration]Grade{0: Good, 250 * time.Millisecond: Good, time.Second: Dubious, -6 * time.Second: Bad} {
		if f := clockFindings([]cql.Clock{{Address: "a", Up: true, Ahead: ahead, Error: 100 * time.Millisecond}}); f[0].Grade != grade {
			t.Errorf("%v ahead: %v", ahead, f)
		}
	}
}

func TestDatacenterFinding(t *testing.T) {
	nodes := []cql.Node{{Datacenter: "dc1"}, {Datacenter: "dc2"}}
	for own, want := range map[string]Grade{"": Bad, "dc1": Good, "dc3": Bad} {
		if f := DatacenterFinding(own, nodes); f.Grade != want {
			t.Errorf("%q: %v", own, f)
		}
	}
}

// preflightOf is what is found of a keyspace.
func preflightOf(t *testing.T, config cql.Config) string {
	t.Helper()
	return preflightAs(t, config, RoleAll)
}

func preflightAs(t *testing.T, config cql.Config, role string) string {
	t.Helper()
	schema := DefaultConfig()
	schema.Create, schema.Role = CreateTables, role
	findings, err := Preflight(t.Context(), PreflightOptions{Session: config, Schema: schema, CoverRate: 2000})
	if err != nil {
		t.Fatal(err)
	}
	return text(findings)
}

// TestPreflight looks at a keyspace of KairosDB on a real node. Nothing is made or
// stored by that.
func TestPreflight(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	if got := preflightOf(t, config); !strings.Contains(got, "bad keyspace: "+config.Keyspace+" is missing") {
		t.Error(got)
	}
	session := cqltest.Keyspace(t, config, cql.Options{})
	if got := preflightOf(t, config); !strings.Contains(got, "ok tables: none; the first start creates them") {
		t.Error(got)
	}
	kairosrowstest.Load(t, session, "narrow")
	before := dump(t, session)
	got := preflightOf(t, config)
	for _, want := range []string{
		"ok nodes: 1", "ok release: Cassandra ", "ok data centre: ", "ok clocks: ", "warn replication: one replica", "ok rows: unit MILLISECONDS",
		"may read and write all tables", "ok tables: missing: varve_spec", "ok KairosDB: no node", "ok size: ", "ok coverage: some ", "ok repair: varve repair takes some ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "bad ") {
		t.Error(got)
	}
	if after := dump(t, session); after != before {
		t.Errorf("the keyspace was\n%s\nand is\n%s", before, after)
	}
	now := time.Now().UnixMilli()
	cqltest.Must(t, session,
		fmt.Sprintf("INSERT INTO service_index (service, service_key, key, value) VALUES ('_Hosts', 'Active', 'k1', 'old') USING TIMESTAMP %d", now-HostLife.Milliseconds()-1000),
		fmt.Sprintf("INSERT INTO service_index (service, service_key, key, value) VALUES ('_Hosts', 'Active', 'varve-1', 'own') USING TIMESTAMP %d", now),
		fmt.Sprintf("INSERT INTO service_index (service, service_key, key, value) VALUES ('_Hosts', 'Active', 'k2', 'kairos-2') USING TIMESTAMP %d", now-1000))
	if got := preflightOf(t, config); !strings.Contains(got, "ok KairosDB: nodes: kairos-2 (") || strings.Contains(got, "own (") || strings.Contains(got, "old (") {
		t.Error(got)
	}
	// As a read cluster, in which nothing is made.
	if got := preflightAs(t, config, RoleRead); !strings.Contains(got, "warn tables: there is no inverted index") || strings.Contains(got, "ok repair") || strings.Contains(got, "bad ") {
		t.Error(got)
	}
	cqltest.Must(t, session, "DROP TABLE row_keys")
	if got := preflightOf(t, config); !strings.Contains(got, "row_keys") {
		t.Error(got)
	}
}

// TestPreflightOfOldKeyspace looks at a keyspace of KairosDB 1.2, and names the page that explains it.
func TestPreflightOfOldKeyspace(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	session := cqltest.Keyspace(t, config, cql.Options{})
	cqltest.Must(t, session, dataCompact, legacyIndex, stringsText)
	cqltest.Must(t, session, "INSERT INTO string_index (key, column1, value) VALUES (textAsBlob('metric_names'), 'old.metric', 0x00) USING TIMESTAMP 1")
	if got := preflightOf(t, config); !strings.Contains(got, "taken as LEGACY, row_width 1814400000 -> see docs/migrating-from-kairosdb.md, pitfalls") {
		t.Error(got)
	}
}

// TestPreflightOfMetadata looks at a keyspace for metadata only.
func TestPreflightOfMetadata(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	session := cqltest.Keyspace(t, config, cql.Options{})
	mustOpen(t, session, func(c *Config) { c.Role = RoleMeta })
	got := preflightAs(t, config, RoleMeta)
	if strings.Contains(got, "bad ") || strings.Contains(got, "missing") || strings.Contains(got, "ok rows") || !strings.Contains(got, "may read and write all tables") {
		t.Error(got)
	}
}

// dump counts the rows of all tables.
func dump(t *testing.T, session *cql.Session) string {
	t.Helper()
	tables, err := session.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, d := range definitions {
		if _, ok := tables[d.Name]; !ok {
			continue
		}
		var n int64
		if _, err := session.One(t.Context(), &cql.Statement{Name: "count", Text: "SELECT count(*) FROM " + d.Name}, nil, &n); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d\n", d.Name, n)
	}
	return b.String()
}

// TestCountRows: an estimate from some places of the ring is near the truth.
func TestCountRows(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	session := cqltest.Keyspace(t, config, cql.Options{})
	mustOpen(t, session, nil)
	const rows = 20_000
	insert := &cql.Statement{Name: "insert", Text: "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)"}
	var entries []cql.Entry
	for i := range rows {
		entries = append(entries, cql.Entry{Statement: insert, Args: []any{fmt.Appendf(nil, "row %d", i), []byte{0, 0, 0, 0}, []byte{1}}})
		if len(entries) == 100 {
			if err := session.Batch(t.Context(), 1, entries); err != nil {
				t.Fatal(err)
			}
			entries = entries[:0]
		}
	}
	p := &preflight{session: session}
	n, exact, err := p.countPartitions(t.Context(), sampleRows)
	if err != nil || exact || n < rows*9/10 || n > rows*11/10 {
		t.Errorf("%d rows, exact %t, %v; there are %d", n, exact, err, rows)
	}
}

// TestRepairForecast holds the forecast against what was measured, within a third.
func TestRepairForecast(t *testing.T) {
	for _, measured := range []struct {
		rows, partitions int64
		took             time.Duration
	}{{30_000, 1, 5926 * time.Millisecond}, {30_000, 3000, 31_400 * time.Millisecond}, {10_000, 10_000, 73 * time.Second}} {
		got := repairTime(measured.rows, measured.partitions)
		if got < measured.took*2/3 || got > measured.took*4/3 {
			t.Errorf("%d rows of %d metrics and row times: forecast %v, measured %v", measured.rows, measured.partitions, got, measured.took)
		}
	}
}

// TestPartitionsOfRowKeys: few partitions are counted exactly, by metric and row time.
func TestPartitionsOfRowKeys(t *testing.T) {
	session := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	mustOpen(t, session, nil)
	insert := &cql.Statement{Name: "insert", Text: "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags) VALUES (?, 'data_points', ?, ?, {})"}
	for metric := range 3 {
		for time := range 2 {
			for _, kind := range []string{"kairos_long", "kairos_double"} {
				if err := session.Exec(t.Context(), insert, 1, fmt.Sprint("m", metric), int64(time), kind); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	p := &preflight{session: session}
	if n, exact, err := p.countPartitions(t.Context(), sampleRowKeys); n != 6 || !exact || err != nil {
		t.Errorf("%d partitions, exact %t, %v; there are 6", n, exact, err)
	}
}

// TestCoverForecast: with few row keys in each metric and row time, their number decides. KairosDB had
// written one series each to 2,500 metrics; coverage then went through 49 metrics and row times a second.
func TestCoverForecast(t *testing.T) {
	if got := coverTime(7466, 5066, 2000); got < 100*time.Second || got > 110*time.Second {
		t.Errorf("7466 rows of 5066 metrics and row times: forecast %v", got)
	}
	if got := coverTime(300_000, 1, 2000); got < 150*time.Second || got > 151*time.Second {
		t.Errorf("300,000 rows of one metric and row time: forecast %v", got)
	}
}
