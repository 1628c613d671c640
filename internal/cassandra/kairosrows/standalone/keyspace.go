// Package standalone works on a keyspace without a server, while servers may run: for
// inspection, and for a repair that can be interrupted.
package standalone

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/schema"
)

// A Keyspace is an open keyspace.
type Keyspace struct {
	Rows    *schema.Keyspace
	Reader  *read.Reader
	session *cql.Session
}

// openWait is how long Open waits for Cassandra.
const openWait = 20 * time.Second

// Open opens a keyspace in a role. It creates nothing.
func Open(ctx context.Context, c cql.Config, settings kairosrows.Settings, role string, log *slog.Logger) (*Keyspace, error) {
	session, err := cql.Open(c, cql.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	k := &Keyspace{session: session}
	ctx, cancel := context.WithTimeout(ctx, openWait)
	defer cancel()
	settings.Schema.Create, settings.Schema.Role = schema.CreateNothing, role
	if k.Rows, err = schema.Open(ctx, session, settings.Schema, nil); err != nil {
		k.Close()
		return nil, fmt.Errorf("open keyspace %s: %w", c.Keyspace, err)
	}
	if k.Reader, err = read.New(k.Rows, settings.Read, read.Options{}); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// Close closes the keyspace.
func (k *Keyspace) Close() {
	if k.Reader != nil {
		k.Reader.Close()
	}
	k.session.Close()
}
