package cql_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
)

const table = "CREATE TABLE t (key blob, column1 blob, value blob, PRIMARY KEY (key, column1))"

var (
	insert    = &cql.Statement{Name: "insert", Text: "INSERT INTO t (key, column1, value) VALUES (?, ?, ?)"}
	insertTTL = &cql.Statement{Name: "insert_ttl", Text: "INSERT INTO t (key, column1, value) VALUES (?, ?, ?) USING TTL ?"}
	insertAt1 = &cql.Statement{Name: "insert_at_1", Text: "INSERT INTO t (key, column1, value) VALUES (?, ?, ?) USING TIMESTAMP 1"}
	remove    = &cql.Statement{Name: "remove", Text: "DELETE FROM t WHERE key = ? AND column1 >= ? AND column1 <= ?"}
	selectAll = &cql.Statement{Name: "select", Text: "SELECT column1, value, WRITETIME(value) FROM t WHERE key = ?", PageSize: 10}
	ahead     = &cql.Statement{Name: "select_ahead", Text: selectAll.Text, PageSize: 10, Prefetch: true}
)

type row struct {
	column, value string
	stamp         int64
}

func read(t *testing.T, s *cql.Session, st *cql.Statement, key string) []row {
	t.Helper()
	rows := s.Query(t.Context(), st, []byte(key))
	var got []row
	for {
		var r row
		var c, v []byte
		if !rows.Scan(&c, &v, &r.stamp) {
			break
		}
		r.column, r.value = string(c), string(v)
		got = append(got, r)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestStatements(t *testing.T) {
	var mu sync.Mutex
	counts := make(map[string]int)
	registry := prometheus.NewRegistry()
	config := cqltest.Config(originals.Cassandra(t))
	config.Compression = true
	s := cqltest.Keyspace(t, config, cql.Options{Registerer: registry, Observe: func(name string) {
		mu.Lock()
		counts[name]++
		mu.Unlock()
	}})
	cqltest.Must(t, s, table)
	ctx := t.Context()

	// The stamp is ours, in the unit that we say.
	if err := s.Exec(ctx, insert, 1000, []byte("k"), []byte("a"), []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec(ctx, insert, 999, []byte("k"), []byte("a"), []byte("late")); err != nil {
		t.Fatal(err)
	}
	entries := []cql.Entry{
		{Statement: insert, Args: []any{[]byte("k"), []byte("b"), []byte("x")}},
		{Statement: insertAt1, Args: []any{[]byte("k"), []byte("a"), []byte("lowest")}},
		{Statement: insertAt1, Args: []any{[]byte("k"), []byte("c"), []byte("lowest")}},
	}
	if err := s.Batch(ctx, 2000, entries); err != nil {
		t.Fatal(err)
	}
	want := []row{{"a", "first", 1000}, {"b", "x", 2000}, {"c", "lowest", 1}}
	if got := read(t, s, selectAll, "k"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rows are %v, want %v", got, want)
	}

	// A page at a time, with and without the next one on its way.
	entries = entries[:0]
	for i := range 95 {
		entries = append(entries, cql.Entry{Statement: insert, Args: []any{[]byte("wide"), fmt.Appendf(nil, "%03d", i), []byte("v")}})
	}
	if err := s.Batch(ctx, 3000, entries); err != nil {
		t.Fatal(err)
	}
	for _, st := range []*cql.Statement{selectAll, ahead} {
		if got := read(t, s, st, "wide"); len(got) != 95 || got[94].column != "094" {
			t.Errorf("%s: %d rows", st.Name, len(got))
		}
		if n := counts[st.Name]; st == ahead && n != 10 || st == selectAll && n != 1+10 {
			t.Errorf("%s was executed %d times", st.Name, n)
		}
	}

	// No node may take a statement for that of another keyspace.
	var text string
	prepared := s.Query(ctx, &cql.Statement{Name: "prepared", Scan: true, Text: "SELECT query_string FROM system.prepared_statements WHERE logged_keyspace = ? ALLOW FILTERING"}, config.Keyspace)
	for prepared.Scan(&text) {
		if !strings.Contains(text, `"`+config.Keyspace+`".t `) && !strings.Contains(text, " system") {
			t.Errorf("prepared without its keyspace: %s", text)
		}
	}
	if err := prepared.Close(); err != nil || text == "" {
		t.Errorf("statements that the node has prepared: %q, %v", text, err)
	}

	// Left early.
	rows := s.Query(ctx, ahead, []byte("wide"))
	var c cql.Raw
	if !rows.Scan(&c, nil, nil) || string(c) != "000" {
		t.Errorf("first column is %q", c)
	}
	if err := rows.Close(); err != nil {
		t.Errorf("closing early: %v", err)
	}
	if rows.Scan(nil, nil, nil) {
		t.Error("a row after Close")
	}

	// Deleted with a stamp below: nothing; with the same: gone.
	for _, c := range []struct {
		stamp int64
		left  int
	}{{2999, 95}, {3000, 0}} {
		if err := s.Exec(ctx, remove, c.stamp, []byte("wide"), []byte("000"), []byte("999")); err != nil {
			t.Fatal(err)
		}
		if got := read(t, s, selectAll, "wide"); len(got) != c.left {
			t.Errorf("%d rows left after a delete at %d, want %d", len(got), c.stamp, c.left)
		}
	}
	if ok, err := s.One(ctx, selectAll, []any{[]byte("none")}, nil, nil, nil); ok || err != nil {
		t.Errorf("One of nothing: %v, %v", ok, err)
	}

	if counts["insert"] != 2+1+1 {
		t.Errorf("insert was counted %d times", counts["insert"])
	}
	if n := metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": "insert", "result": "ok"}); n != 4 {
		t.Errorf("metric counts %v inserts", n)
	}
	if n := metric(t, registry, "varve_cql_rows_total", map[string]string{"statement": "insert"}); n != 2+1+95 {
		t.Errorf("metric counts %v inserted rows", n)
	}
}

// TestPagesOfLongRows: pages of long rows have fewer of them, so that a node that sends some at once
// keeps its memory.
func TestPagesOfLongRows(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{Registerer: registry})
	cqltest.Must(t, s, table)
	fill := func(key string, from, to, size int) {
		t.Helper()
		for ; from < to; from += 100 {
			var entries []cql.Entry
			for i := range 100 {
				entries = append(entries, cql.Entry{Statement: insert, Args: []any{[]byte(key), fmt.Appendf(nil, "%05d", from+i), bytes.Repeat([]byte("v"), size)}})
			}
			if err := s.Batch(t.Context(), 1, entries); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill("short", 0, 2600, 10)
	fill("long", 0, 2600, 8000)
	fill("mixed", 0, 8000, 10)
	fill("mixed", 8000, 14000, 2000)
	for _, test := range []struct {
		key         string
		prefetch    bool
		many        bool
		rows        int
		fewest, all int // pages
	}{
		{"short", false, false, 2600, 4, 4}, {"short", true, false, 2600, 4, 4}, {"short", false, true, 2600, 5, 5},
		{"long", false, false, 2600, 20, 21}, {"long", true, false, 2600, 20, 21},
		{"mixed", false, false, 14000, 11, 12}, // 64, 256, 1024 and 4096 short rows, 5000 rows of which 2560 are short, and the rest by theirs
	} {
		st := &cql.Statement{Name: fmt.Sprintf("%s_ahead_%v_many_%v", test.key, test.prefetch, test.many), Text: selectAll.Text, Prefetch: test.prefetch, Many: test.many}
		if got := read(t, s, st, test.key); len(got) != test.rows || got[len(got)-1].column != fmt.Sprintf("%05d", test.rows-1) {
			t.Errorf("%s: %d rows", st.Name, len(got))
		}
		if n := int(metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": st.Name})); n < test.fewest || n > test.all {
			t.Errorf("%s: %d pages, want %d to %d", st.Name, n, test.fewest, test.all)
		}
	}
	// Pages of scans stay short: 64, 256, 1000, 1000 and 280.
	st := &cql.Statement{Name: "scan", Text: selectAll.Text, Scan: true}
	if got := read(t, s, st, "short"); len(got) != 2600 {
		t.Errorf("%s: %d rows", st.Name, len(got))
	}
	if n := int(metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": st.Name})); n != 5 {
		t.Errorf("%s: %d pages, want 5", st.Name, n)
	}
	// Texts that may be null are as long as others.
	st = &cql.Statement{Name: "long_nullable", Text: selectAll.Text}
	rows := s.Query(t.Context(), st, []byte("long"))
	defer rows.Close()
	var text *string
	for rows.Scan(nil, &text, nil) {
	}
	if n := int(metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": st.Name})); rows.Close() != nil || n < 17 {
		t.Errorf("%s: %d pages, %v", st.Name, n, rows.Close())
	}
}

// TestRoomForPages: pages of rows that may be very long wait while others of them are being fetched, and
// no other read waits with them.
func TestRoomForPages(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Must(t, s, table)
	long := &cql.Statement{Name: "long", Text: selectAll.Text, RowBytes: 64 << 10}
	release := s.TakePageRoom(t)
	if got := read(t, s, selectAll, "none"); len(got) != 0 {
		t.Error(got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	rows := s.Query(ctx, long, []byte("none"))
	if rows.Scan(nil, nil, nil) || !errors.Is(rows.Close(), context.DeadlineExceeded) {
		t.Errorf("without room: %v", rows.Close())
	}
	release()
	if got := read(t, s, long, "none"); len(got) != 0 {
		t.Error(got)
	}
}

// TestReadsOfCallersThatLeft: a read counts as in flight until the node has answered it, although its
// caller has left, so that callers who leave do not queue up reads in the node.
func TestReadsOfCallersThatLeft(t *testing.T) {
	const most, callers, takes = 4, 20, 3 * time.Second
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	config := cqltest.Config(node.Address)
	config.ReadsInFlight = most
	s := cqltest.Keyspace(t, config, cql.Options{})
	cqltest.Must(t, s, table)
	if got := read(t, s, selectAll, "none"); len(got) != 0 {
		t.Error(got)
	}
	var sent atomic.Int64
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		if len(r.Statements) != 1 || !strings.Contains(r.Statements[0].Text, "WHERE key = ?") {
			return nil
		}
		sent.Add(1)
		return cqltest.Late(takes)
	})
	began := time.Now()
	for range callers {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		rows := s.Query(ctx, selectAll, []byte("none"))
		if rows.Scan(nil, nil, nil) || !errors.Is(rows.Close(), context.DeadlineExceeded) {
			t.Errorf("a caller that left: %v", rows.Close())
		}
		cancel()
	}
	if n := sent.Load(); time.Since(began) < takes && n > most {
		t.Errorf("%d reads are in flight, want at most %d", n, most)
	}
	node.Mend()
	if got := read(t, s, selectAll, "none"); len(got) != 0 {
		t.Error(got)
	}
}

// TestPagesOfVeryLongRows: pages of rows that may be very long begin with few of them, and short rows in
// front do not make them much longer.
func TestPagesOfVeryLongRows(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{Registerer: registry})
	cqltest.Must(t, s, table)
	for i := range 500 {
		size := 10
		if i >= 400 {
			size = 60_000
		}
		if err := s.Exec(t.Context(), insert, 1, []byte("k"), fmt.Appendf(nil, "%05d", i), bytes.Repeat([]byte("v"), size)); err != nil {
			t.Fatal(err)
		}
	}
	st := &cql.Statement{Name: "very_long", Text: selectAll.Text, RowBytes: 64 << 10}
	if got := read(t, s, st, "k"); len(got) != 500 {
		t.Errorf("%d rows", len(got))
	}
	// 16, 64, 128, 128 and 128 rows, of which 64 are long, then about 32.
	if n := int(metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": "very_long"})); n < 6 || n > 8 {
		t.Errorf("%d pages", n)
	}
}

// TestPagesOfLimit: a limit between the first page of a statement and the pages that may follow, which
// become longer.
func TestPagesOfLimit(t *testing.T) {
	counts := map[string]int{}
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{Observe: func(name string) { counts[name]++ }})
	cqltest.Must(t, s, table)
	const short, long = 0, 64 << 10
	for i := range 700 {
		if err := s.Exec(t.Context(), insert, 1, []byte("k"), fmt.Appendf(nil, "%05d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	for rowBytes, limits := range map[int]map[int]int{ // pages
		long:  {16: 1, 17: 2, 20: 2, 64: 2, 65: 2, 80: 2, 81: 3, 200: 3, 208: 3},
		short: {1: 1, 63: 1, 64: 1, 65: 2, 256: 2, 257: 2, 320: 2, 321: 3, 500: 3, 600: 3},
	} {
		for limit, pages := range limits {
			clear(counts)
			st := &cql.Statement{Name: "limited", Text: selectAll.Text + " LIMIT ?", RowBytes: rowBytes}
			rows := s.Query(t.Context(), st, []byte("k"), limit)
			var column []byte
			n := 0
			for ; rows.Scan(&column, nil, nil); n++ {
				if want := fmt.Sprintf("%05d", n); string(column) != want {
					t.Fatalf("limit %d: row %d is %s", limit, n, column)
				}
			}
			if err := rows.Close(); err != nil || n != limit || counts["limited"] != pages {
				t.Errorf("limit %d: %d rows in %d pages, want %d; %v", limit, n, counts["limited"], pages, err)
			}
		}
	}
}

func metric(t *testing.T, r *prometheus.Registry, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if want, ok := labels[l.GetName()]; ok && want != l.GetValue() {
					continue metrics
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return math.NaN()
}

// TestTagMap: bound in KairosDB's order, scanned in it, null told apart.
func TestTagMapOnServer(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Must(t, s, "CREATE TABLE m (k text, tags frozen<map<text, text>>, m timeuuid static, at timestamp, PRIMARY KEY (k, tags))")
	put := &cql.Statement{Name: "put", Text: "INSERT INTO m (k, tags, at) VALUES (?, ?, ?)"}
	touch := &cql.Statement{Name: "touch", Text: "INSERT INTO m (k, m) VALUES (?, now())"}
	get := &cql.Statement{Name: "get", Text: "SELECT tags, m, at FROM m WHERE k = ?"}
	ctx := t.Context()
	tags := model.MustTags("\U0001F600", "emoji", "\uFFFD", "bmp", "host", "ä", "empty", "x")
	if err := s.Exec(ctx, put, 5, "k", cql.TagMap{Tags: tags}, int64(-7)); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec(ctx, touch, 5, "static"); err != nil {
		t.Fatal(err)
	}
	var m cql.TagMap
	var at cql.Millis
	var id cql.UUID
	if ok, err := s.One(ctx, get, []any{"k"}, &m, &id, &at); !ok || err != nil || m.Null || m.Tags != tags || at.MS != -7 || at.Null {
		t.Errorf("row is %v, %v, %v, %v; want %v", m, at, ok, err, tags)
	}
	if ok, err := s.One(ctx, get, []any{"static"}, &m, &id, &at); !ok || err != nil || !m.Null || !at.Null || id == (cql.UUID{}) {
		t.Errorf("static row is %v, %v, %v, %v, %v", m, at, id, ok, err)
	}
}

// TestRefusals: what the server refuses for good is told at once, with its
// reason, and is not tried again.
func TestRefusals(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{Registerer: registry})
	cqltest.Must(t, s, table)
	ctx := t.Context()
	key := func(n int) []byte { return bytes.Repeat([]byte("k"), n) }
	var manyPartitions []cql.Entry
	for i := range 70 {
		manyPartitions = append(manyPartitions, cql.Entry{Statement: insert, Args: []any{fmt.Appendf(nil, "p%d", i), []byte("c"), key(1024)}})
	}
	for _, c := range []struct {
		name   string
		do     func() error
		reason cql.Reason
		text   string
	}{
		{"batch over partitions", func() error { return s.Batch(ctx, 1, manyPartitions) }, cql.BatchTooLarge, "batch_size_fail_threshold"},
		{"value of 17 MiB", func() error { return s.Exec(ctx, insert, 1, []byte("k"), []byte("c"), key(17<<20)) }, cql.RequestTooLarge, "native_transport_max_frame_size"},
		{"key of 65536 bytes", func() error { return s.Exec(ctx, insert, 1, key(65536), []byte("c"), []byte("v")) }, cql.KeyTooLong, "table t"},
		{"TTL of 20 years and a second", func() error { return s.Exec(ctx, insertTTL, 1, []byte("k"), []byte("c"), []byte("v"), 630720001) }, cql.TTLTooLong, "shorter"},
		{"TTL beyond 2038", func() error { return s.Exec(ctx, insertTTL, 1, []byte("k"), []byte("c"), []byte("v"), 630720000) }, cql.TTLTooLong, "NONE"},
		{"syntax", func() error { return s.Exec(ctx, &cql.Statement{Name: "bad", Text: "INSERT INTO"}, 1) }, cql.BadSyntax, "bad"},
		{"no table", func() error {
			return s.Exec(ctx, &cql.Statement{Name: "gone", Text: "INSERT INTO gone (a) VALUES (?)"}, 1, "x")
		}, cql.NoSuchTable, "create the table"},
		{"no column", func() error {
			return s.Exec(ctx, &cql.Statement{Name: "gone", Text: "INSERT INTO t (a) VALUES (?)"}, 1, "x")
		}, cql.NoSuchTable, ""},
		{"argument of a wrong type", func() error { return s.Exec(ctx, insert, 1, 1.5, []byte("c"), []byte("v")) }, cql.BadArgument, ""},
		{"too few arguments", func() error { return s.Exec(ctx, insert, 1, []byte("c")) }, cql.BadArgument, ""},
		{"options", func() error {
			return s.Change(ctx, &cql.Statement{Name: "create", Text: "CREATE TABLE x (a int PRIMARY KEY) WITH compaction = {'class': 'NoSuchStrategy'}"})
		}, cql.BadConfiguration, "table x"},
		{"scanning into a wrong type", func() error {
			if err := s.Exec(ctx, insert, 1, []byte("k"), []byte("c"), []byte("v")); err != nil {
				return err
			}
			var f float64
			rows := s.Query(ctx, selectAll, []byte("k"))
			rows.Scan(&f, nil, nil)
			return rows.Close()
		}, cql.BadArgument, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.do()
			var refused *cql.RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("%T: %v", err, err)
			}
			if refused.Reason != c.reason || !strings.Contains(err.Error(), c.text) {
				t.Errorf("reason %s, want %s with %q: %v", refused.Reason, c.reason, c.text, err)
			}
			t.Log(err)
		})
	}
	if n := metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": "insert_ttl", "result": "refused"}); n != 2 {
		t.Errorf("%v attempts at two statements that are refused", n)
	}
	// One partition has no such limit.
	for i := range manyPartitions {
		manyPartitions[i].Args = []any{[]byte("one"), fmt.Appendf(nil, "%d", i), key(10240)}
	}
	if err := s.Batch(ctx, 1, manyPartitions); err != nil {
		t.Errorf("700 KiB in one partition: %v", err)
	}
}

func TestSchemaIsRead(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Must(t, s, table,
		"CREATE TABLE c (key blob, column1 blob, value blob, PRIMARY KEY (key, column1)) WITH COMPACT STORAGE AND default_time_to_live = 60",
		"CREATE TABLE w (a text, b int, c frozen<map<text, text>>, d timeuuid static, PRIMARY KEY ((a, b), c)) WITH compaction = {'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MILLISECONDS'}")
	tables, err := s.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) != 3 || tables["t"].Compact() || !tables["c"].Compact() {
		t.Errorf("tables are %+v", tables)
	}
	w := tables["w"]
	want := []cql.Column{{"a", "text", "partition_key", 0}, {"b", "int", "partition_key", 1}, {"c", "frozen<map<text, text>>", "clustering", 0}, {"d", "timeuuid", "static", -1}}
	if fmt.Sprint(w.Columns) != fmt.Sprint(want) || w.Compaction["timestamp_resolution"] != "MILLISECONDS" {
		t.Errorf("table w is %+v", w)
	}
	nodes, err := s.Nodes(t.Context())
	if err != nil || len(nodes) != 1 || nodes[0].Version != s.State().Version || nodes[0].Datacenter == "" {
		t.Errorf("nodes are %+v, %v", nodes, err)
	}
}

// TestKeyspaceAppears: a session that found no keyspace takes it up when someone
// makes it.
func TestKeyspaceAppears(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	s, other := cqltest.Open(t, config, cql.Options{}), cqltest.Open(t, config, cql.Options{})
	cqltest.Drop(t, s)
	if s.State().Keyspace {
		t.Fatal("the keyspace is there before it is made")
	}
	if tables, err := s.Tables(t.Context()); err != nil || len(tables) != 0 {
		t.Errorf("tables of no keyspace: %v, %v", tables, err)
	}
	err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v"))
	var refused *cql.RefusedError
	if !errors.As(err, &refused) {
		t.Errorf("writing without a keyspace: %v", err)
	}
	if err := other.CreateKeyspace(t.Context(), "{'class': 'SimpleStrategy', 'replication_factor': '1'}"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.WaitKeyspace(ctx); err != nil {
		t.Fatal(err)
	}
	cqltest.Must(t, other, table)
	if err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v")); err != nil {
		t.Error(err)
	}
}

// TestDecide: of many who decide at once, all hear the same.
func TestDecide(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Must(t, s, "CREATE TABLE d (name text PRIMARY KEY, value text)")
	st := &cql.Statement{Name: "decide", Text: "INSERT INTO d (name, value) VALUES (?, ?) IF NOT EXISTS"}
	heard := make([]string, 8)
	var wg sync.WaitGroup
	for i := range heard {
		wg.Go(func() {
			mine := fmt.Sprint("value", i)
			var err error
			if heard[i], err = s.Decide(t.Context(), st, "value", mine, "name", mine); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, h := range heard {
		if h != heard[0] {
			t.Errorf("deciders heard %q", heard)
			break
		}
	}
}

// TestContexts: a caller's context ends a statement at once, and is told as what
// it is.
func TestContexts(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Must(t, s, table)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Exec(ctx, insert, 1, []byte("k"), []byte("c"), []byte("v")); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := s.One(ctx, selectAll, []any{[]byte("k")}, nil, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	var unavailable *store.UnavailableError
	if errors.As(s.Exec(ctx, insert, 1, []byte("k"), []byte("c"), []byte("v")), &unavailable) {
		t.Error("the caller's deadline is told as Cassandra's fault")
	}
}

// TestUnavailable: too few replicas; tried again for a while, and then told as
// something that may pass.
func TestUnavailable(t *testing.T) {
	registry := prometheus.NewRegistry()
	config := cqltest.Config(originals.Cassandra(t))
	config.Attempts = 3
	s := cqltest.Open(t, config, cql.Options{Registerer: registry})
	cqltest.Drop(t, s)
	if err := s.CreateKeyspace(t.Context(), "{'class': 'SimpleStrategy', 'replication_factor': '3'}"); err != nil {
		t.Fatal(err)
	}
	cqltest.Must(t, s, table)
	err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v"))
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "insert on table t failed 3 times: too few replicas are alive") {
		t.Errorf("writing to one replica of three: %v", err)
	}
	t.Log(err)
	if n := metric(t, registry, "varve_cql_attempts_total", map[string]string{"statement": "insert", "result": "unavailable"}); n != 3 {
		t.Errorf("%v attempts", n)
	}
	if !s.State().Connected {
		t.Error("a node that says unavailable is one that answers")
	}
}

// TestScanAfterClose: rows that are being read when the session is closed end with
// an error.
func TestScanAfterClose(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	s := cqltest.Keyspace(t, config, cql.Options{})
	cqltest.Must(t, s, table)
	for i := range 40 {
		if err := s.Exec(t.Context(), insert, 1, []byte("k"), fmt.Appendf(nil, "%02d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	closing, err := cql.Open(config, cql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := closing.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := closing.Query(context.Background(), ahead, []byte("k"))
	if !rows.Scan(nil, nil, nil) {
		t.Fatal(rows.Close())
	}
	closing.Close()
	done := make(chan int, 1)
	go func() {
		n := 1
		for rows.Scan(nil, nil, nil) {
			n++
		}
		done <- n
	}()
	select {
	case n := <-done:
		if err := rows.Close(); n > 20 || err == nil {
			t.Errorf("%d rows and %v, want an error after two pages at most", n, err)
		}
	case <-time.After(time.Minute):
		t.Error("Scan waits for ever")
	}
}

// TestTextsThatAreNotUTF8: no statement is sent with a text that no column accepts. It is the
// client's fault, and not a refusal.
func TestTextsThatAreNotUTF8(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Must(t, s, "CREATE TABLE texts (key text, tags frozen<map<text, text>>, value text, PRIMARY KEY (key, tags))")
	ctx := t.Context()
	const bad = "caf\xe9"
	put := &cql.Statement{Name: "put", Text: "INSERT INTO texts (key, tags, value) VALUES (?, ?, ?)"}
	once := &cql.Statement{Name: "once", Text: "INSERT INTO texts (key, tags, value) VALUES (?, ?, ?) IF NOT EXISTS"}
	get := &cql.Statement{Name: "get", Text: "SELECT value FROM texts WHERE key = ?"}
	tags, badTags := cql.TagMap{Tags: model.MustTags("a", "b")}, cql.TagMap{Tags: model.MustTags("a", bad)}
	good := cql.Entry{Statement: put, Args: []any{"k", tags, "v"}}
	var value string
	for name, do := range map[string]func() error{
		"exec":  func() error { return s.Exec(ctx, put, 1, bad, tags, "v") },
		"value": func() error { return s.Exec(ctx, put, 1, "k", tags, bad) },
		"tags":  func() error { return s.Exec(ctx, put, 1, "k", badTags, "v") },
		"batch": func() error {
			return s.Batch(ctx, 1, []cql.Entry{good, {Statement: put, Args: []any{"k", badTags, "v"}}})
		},
		"one":    func() error { _, err := s.One(ctx, get, []any{bad}, &value); return err },
		"decide": func() error { _, err := s.Decide(ctx, once, "value", bad, "k", tags, bad); return err },
	} {
		if err := do(); !errors.As(err, new(*store.InputError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if there, err := s.One(ctx, get, []any{"k"}, &value); there || err != nil {
		t.Errorf("a row was written: %v, %v", there, err)
	}
}
