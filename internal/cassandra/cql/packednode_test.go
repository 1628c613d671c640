package cql_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// TestPackedOnNode: a batch whose frame this package writes is refused, prepared again and sent
// again by a real node as any other, in a keyspace whose name needs quotes. Values at their
// bounds arrive as they are.
func TestPackedOnNode(t *testing.T) {
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	config := cqltest.Config(node.Address)
	config.Keyspace = "Mixed_" + strings.TrimPrefix(config.Keyspace, "test_")
	s := cqltest.Keyspace(t, config, cql.Options{})
	qualified := fmt.Sprintf("%q.t", config.Keyspace)
	create := strings.Replace(table, "TABLE t", "TABLE "+qualified, 1)
	cqltest.Must(t, s, create)
	batch := func(key string, values ...[]byte) error {
		var entries []cql.Entry
		for i, v := range values {
			entries = append(entries, cql.Entry{Statement: insert, Args: []any{[]byte(key), []byte{byte(i)}, v}})
		}
		return s.Batch(t.Context(), 1000, entries)
	}
	holds := func(key string, want ...string) {
		t.Helper()
		var got []string
		for _, r := range read(t, s, selectAll, key) {
			got = append(got, r.value)
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s holds %.100q, want %.100q", key, got, want)
		}
	}
	long := bytes.Repeat([]byte("x"), 1<<20)
	if err := batch("bounds", []byte("a"), []byte{}, long, []byte("b")); err != nil {
		t.Fatal(err)
	}
	holds("bounds", "a", "", string(long), "b")

	// Beyond what a node takes. The connection, or another one, serves what follows.
	var refused *cql.RefusedError
	if err := batch("huge", bytes.Repeat(long, 9), bytes.Repeat(long, 9)); !errors.As(err, &refused) || refused.Reason != cql.RequestTooLarge {
		t.Errorf("a frame of 18 MiB: %.200v", err)
	}
	if err := batch(string(bytes.Repeat([]byte("k"), 65536)), []byte("a"), []byte("b")); !errors.As(err, &refused) || refused.Reason != cql.KeyTooLong {
		t.Errorf("a key of 64 KiB: %.200v", err)
	}

	// The node forgets the statement, and the table is another one.
	for n := range 2 {
		cqltest.Must(t, s, "DROP TABLE "+qualified, create)
		key := fmt.Sprint("again ", n)
		if err := batch(key, []byte("a"), []byte("b")); err != nil {
			t.Fatal(err)
		}
		holds(key, "a", "b")
	}

	// A connection that is closed in place of the answer.
	hangs := make(chan bool, 1)
	hangs <- true
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		if len(r.Statements) < 2 {
			return nil
		}
		select {
		case <-hangs:
			return cqltest.HangUp
		default:
			return nil
		}
	})
	if err := batch("cut", []byte("a"), []byte("b")); err != nil {
		t.Error(err)
	}
	holds("cut", "a", "b")
	if len(hangs) > 0 {
		t.Error("no batch of several statements has passed")
	}
}
