package cqltest_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
)

var (
	insert = &cql.Statement{Name: "insert", Text: "INSERT INTO t (key, value) VALUES (?, ?)"}
	read   = &cql.Statement{Name: "read", Text: "SELECT value FROM t WHERE key = ?"}
)

// TestFailingNode: chosen requests, prepared ones and such in batches too, meet
// trouble; others reach the node.
func TestFailingNode(t *testing.T) {
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	config := cqltest.Config(node.Address)
	config.Attempts, config.WriteTimeout, config.StallAfter = 1, 2*time.Second, time.Second
	s := cqltest.Keyspace(t, config, cql.Options{})
	cqltest.Must(t, s, "CREATE TABLE t (key blob PRIMARY KEY, value blob)")
	write := func(keys ...string) error {
		var entries []cql.Entry
		for _, k := range keys {
			entries = append(entries, cql.Entry{Statement: insert, Args: []any{[]byte(k), []byte("v")}})
		}
		return s.Batch(t.Context(), 1, entries)
	}
	soon := func(keys ...string) error { // the node may be busy for longer than the timeout
		err := write(keys...)
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
			err = write(keys...)
		}
		return err
	}
	there := func(key string) bool {
		found, err := s.One(t.Context(), read, []any{[]byte(key)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if err := errors.Join(soon("a", "b"), soon("c")); err != nil {
		t.Fatal(err)
	}
	fail := func(with *cqltest.Trouble) {
		node.Fail(func(r cqltest.Request) *cqltest.Trouble {
			for _, b := range r.Statements {
				if strings.Contains(b.Text, "INSERT INTO") && bytes.HasPrefix(b.Values[0], []byte("bad")) {
					return with
				}
			}
			return nil
		})
	}
	for i, c := range []struct {
		name    string
		with    *cqltest.Trouble
		refused cql.Reason // "" is unavailable
		applied bool
	}{
		{"server error", cqltest.ServerError, "", false},
		{"overloaded", cqltest.Overloaded, "", false},
		{"unavailable", cqltest.Unavailable, "", false},
		{"timeout", cqltest.WriteTimeout, "", false},
		{"applied timeout", cqltest.AppliedTimeout, "", true},
		{"failure", cqltest.WriteFailure, "", false},
		{"key too long", cqltest.KeyTooLong, cql.KeyTooLong, false},
		{"mutation too large", cqltest.MutationTooLarge, cql.RequestTooLarge, false},
		{"value too large", cqltest.ValueGuardrail, cql.ValueTooLarge, false},
		{"guardrail", cqltest.OtherGuardrail, cql.GuardrailHit, false},
		{"rights", cqltest.Unauthorized, cql.Unauthorized, false},
		{"silent", cqltest.Silent, "", false},
		{"late", cqltest.Late(4 * time.Second), "", true},
		{"hang up", cqltest.HangUp, "", false},
	} {
		fail(c.with)
		for _, keys := range [][]string{{"bad" + string(rune('a'+i))}, {"good", "bad" + string(rune('A'+i))}} {
			err := write(keys...)
			var refused *cql.RefusedError
			var unavailable *store.UnavailableError
			switch {
			case c.refused != "" && (!errors.As(err, &refused) || refused.Reason != c.refused):
				t.Errorf("%s, %d statements: %v", c.name, len(keys), err)
			case c.refused == "" && !errors.As(err, &unavailable):
				t.Errorf("%s, %d statements: %v", c.name, len(keys), err)
			}
			if err := soon("other"); err != nil {
				t.Errorf("%s: another statement: %v", c.name, err)
			}
			node.Mend()
			for end := time.Now().Add(time.Minute); there(keys[len(keys)-1]) != c.applied; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: applied %v, want %v", c.name, !c.applied, c.applied)
				}
			}
			fail(c.with)
		}
	}
}
