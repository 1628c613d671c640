package cassandra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
)

// change executes a statement that changes the schema, or empties a table.
func change(t *testing.T, c settings, text string) {
	t.Helper()
	cqltest.Must(t, cqltest.Open(t, c.Config.Config, cql.Options{}), text)
}

func reopened(t *testing.T, fs vfs.FS, c settings, s *Store) *Store {
	t.Helper()
	if s != nil {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.open(fs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	})
	return ready(t, s)
}

// TestEmptiedTables: someone empties all tables of a running store. Samples that it accepts
// afterwards have their correct times, also after a restart.
func TestEmptiedTables(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	c.Schema.RowWidth = 86_400_000
	fs := vfs.NewMem()
	s := reopened(t, fs, c, nil)
	put(t, s, "m", "x", map[int64]int64{1501672887987: 1})
	flushed(t, s)
	tables, err := s.written.session.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range tables {
		change(t, c, "TRUNCATE "+c.Keyspace+"."+name)
	}
	// The store looks once a second at most whether index rows have vanished.
	row := &cql.Statement{Name: "test", Text: "SELECT metric FROM row_keys WHERE metric = ? LIMIT 1 ALLOW FILTERING"}
	want := "x:"
	for n, there := int64(0), false; !there; n++ {
		if n == 1000 {
			t.Fatal("the index row of m was not written again")
		}
		for _, metric := range []string{"m", "n"} {
			put(t, s, metric, "x", map[int64]int64{1501672887988 + n: 2})
		}
		want += fmt.Sprintf(" %d=2", 1501672887988+n)
		flushed(t, s)
		if there, err = s.written.session.One(t.Context(), row, []any{"m"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	c.Schema.RowWidth = 3_600_000 // of new keyspaces
	s = reopened(t, fs, c, s)
	for _, metric := range []string{"m", "n"} {
		same(t, metric, answer(t, s, metric, all()), want)
	}
}

// oneWritten opens a store over a keyspace of its own, in which a sample is written.
func oneWritten(t *testing.T) (settings, vfs.FS, *Store) {
	t.Helper()
	c := clustersConfig(t)
	dropAfter(t, c)
	c.Spool.Linger = 10 * time.Millisecond
	fs := vfs.NewMem()
	s := reopened(t, fs, c, nil)
	put(t, s, "m", "x", map[int64]int64{1501672887000: 1})
	flushed(t, s)
	return c, fs, s
}

// TestKeyspaceMadeAgain: the keyspace of a running store is dropped, and created again with
// another row width. Nothing is written or read with the former width. Samples that are
// accepted meanwhile wait, and have their correct times after a restart.
func TestKeyspaceMadeAgain(t *testing.T) {
	c, fs, s := oneWritten(t)
	change(t, c, "DROP KEYSPACE "+c.Keyspace)
	other := c
	other.Schema.RowTimeUnit, other.Schema.RowWidth = "SECONDS", 1_814_400_000
	if err := ready(t, openStore(t, other, Options{})).Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.confirm(t.Context()); err == nil {
		t.Fatal("it is taken for the keyspace of before")
	}
	put(t, s, "m", "x", map[int64]int64{1501672889000: 2})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Flush(ctx); err == nil {
		t.Error("samples are written")
	}
	var changed *layout.ChangedError
	var unavailable *store.UnavailableError
	if lines, err := ask(t.Context(), s, "m", all()); !errors.As(err, &changed) || !errors.As(err, &unavailable) {
		t.Errorf("it answers: %q, %v", lines, err)
	}
	if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); !errors.As(err, &changed) {
		t.Errorf("it deletes: %v", err)
	}
	s = reopened(t, fs, c, s)
	flushed(t, s)
	same(t, "after a restart", answer(t, s, "m", all()), "x: 1501672889000=2")
}

// TestDroppedColumn: somebody drops the column of the values, and adds it again. Cassandra hides what
// is written to it from then on. Samples that are accepted meanwhile wait until the table is recreated.
func TestDroppedColumn(t *testing.T) {
	c, fs, s := oneWritten(t)
	change(t, c, "ALTER TABLE "+c.Keyspace+".data_points DROP value")
	change(t, c, "ALTER TABLE "+c.Keyspace+".data_points ADD value blob")
	put(t, s, "m", "x", map[int64]int64{1501672889000: 2})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Flush(ctx); err == nil {
		t.Error("samples count as written")
	}
	if err := s.confirm(t.Context()); err == nil || !strings.Contains(err.Error(), "its column value was dropped") {
		t.Errorf("it is confirmed: %v", err)
	}
	if lines, err := ask(t.Context(), s, "m", all()); !errors.As(err, new(*store.UnavailableError)) {
		t.Errorf("it answers: %q, %v", lines, err)
	}
	change(t, c, "DROP TABLE "+c.Keyspace+".data_points")
	s = reopened(t, fs, c, s)
	flushed(t, s)
	same(t, "after a restart", answer(t, s, "m", all()), "x: 1501672889000=2")
}

// TestWaitingSaysWhy: if Cassandra has been unreachable since the start, the errors of queries
// and the status contain the cause.
func TestWaitingSaysWhy(t *testing.T) {
	c := defaultSettings()
	c.Hosts = []string{cqltest.ClosedPort(t)}
	c.Spool.Linger = time.Hour
	s := openStore(t, c, Options{})
	for end := time.Now().Add(time.Minute); !strings.Contains(s.written.session.State().Reason, "refused"); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(s.written.session.State())
		}
	}
	_, err := ask(t.Context(), s, "m", all())
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a question is told: %v", err)
	}
	if got := s.written.status().Waiting; !strings.Contains(got, "connection refused") {
		t.Errorf("the status is %q", got)
	}
	if got := textOf(s.Degraded()); !strings.Contains(got, ", when this server started") {
		t.Errorf("the outage, which may have begun before the start, is described as %q", got)
	}
}
