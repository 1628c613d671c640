// Package cqltest gives tests sessions with a running Cassandra, each in a keyspace of its own.
package cqltest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
)

// Patience is how long a step of a test may take that waits for a node, for example to create
// all tables of a keyspace. Only a test that fails reaches it. A node executes changes of the
// schema one after the other, and on a busy machine each takes seconds.
const Patience = 5 * time.Minute

// Config returns settings for the nodes at the addresses and a new keyspace
// name. Timeouts are long: the machine of a test may be busy.
func Config(addresses ...string) cql.Config {
	c := cql.DefaultConfig()
	c.Hosts = addresses
	c.Keyspace = Name()
	c.ConnectTimeout = 10 * time.Second
	c.ReadTimeout, c.WriteTimeout = 20*time.Second, 20*time.Second
	c.ScanTimeout = Patience
	c.StallAfter = 10 * time.Second
	return c
}

// Name returns an unused name for a keyspace.
func Name() string {
	var b [8]byte
	rand.Read(b[:])
	return "test_" + hex.EncodeToString(b[:])
}

// Open opens a session that ends with the test. It waits for the cluster.
func Open(t testing.TB, config cql.Config, o cql.Options) *cql.Session {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := cql.Open(config, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// Drop removes the session's keyspace when the test ends.
func Drop(t testing.TB, s *cql.Session) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		drop := &cql.Statement{Name: "drop_keyspace", Text: `DROP KEYSPACE IF EXISTS "` + s.KeyspaceName() + `"`}
		if err := s.Change(ctx, drop); err != nil {
			t.Logf("dropping the keyspace: %v", err)
		}
	})
}

// Keyspace opens a session with a new keyspace of one replica, which is dropped
// when the test ends.
func Keyspace(t testing.TB, config cql.Config, o cql.Options) *cql.Session {
	t.Helper()
	s := Open(t, config, o)
	Drop(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := s.CreateKeyspace(ctx, "{'class': 'SimpleStrategy', 'replication_factor': '1'}"); err != nil {
		t.Fatal(err)
	}
	return s
}

// Must executes statements that change the schema.
func Must(t testing.TB, s *cql.Session, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := s.Change(t.Context(), &cql.Statement{Name: "test", Text: text}); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// ClosedPort returns an address on this machine where nothing listens. The test itself listened
// there a moment ago, so no other program does. Other tests get their free ports at 127.0.0.1
// and may be given this one there.
func ClosedPort(t testing.TB) string {
	t.Helper()
	var own [2]byte
	rand.Read(own[:])
	l, err := net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", own[0], own[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
