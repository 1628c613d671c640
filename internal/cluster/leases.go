package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
)

// Options are the dependencies of [Leases].
type Options struct {
	// Node is the id of the server, which remains the same after a restart. Note is for people.
	Node, Note string

	// Usable returns why the session must not be used now, nil while it may be used.
	Usable func() error

	// Create says whether to create the table if it is missing.
	Create bool

	// Without says, in the log, what it means for the work under the leases that there can be none.
	Without string

	Log *slog.Logger
}

// Leases are those of a process whose keyspace may be reached later, or may have no table for
// them. Many goroutines may use them at once.
type Leases struct {
	session *cql.Session
	options Options
	without sync.Once // limits the log line about the missing table

	mu   sync.Mutex
	node *Node // nil until the table is open
}

// NewLeases returns leases in the keyspace of a session. It does no I/O.
func NewLeases(session *cql.Session, o Options) *Leases {
	return &Leases{session: session, options: o}
}

// Acquire is [Node.Acquire]. It returns nil without an error if there can be no leases: the table
// is missing and may not be created, or the user has no right to it.
func (l *Leases) Acquire(ctx context.Context, name string, life time.Duration) (*Lease, error) {
	node, err := l.open(ctx)
	if err == nil {
		var lease *Lease
		if lease, err = node.Acquire(ctx, name, life); err == nil {
			return lease, nil
		}
	}
	_, missing := errors.AsType[*cql.TableError](err)
	_, refused := errors.AsType[*cql.RefusedError](err)
	if missing || refused {
		l.without.Do(func() {
			l.options.Log.Warn("servers have no leases and cannot exclude each other; "+l.options.Without, "error", err)
		})
		return nil, nil
	}
	return nil, err
}

func (l *Leases) open(ctx context.Context) (*Node, error) {
	if err := l.options.Usable(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node != nil {
		return l.node, nil
	}
	registers, err := OpenRegisters(ctx, l.session, l.options.Create)
	if err != nil {
		return nil, err
	}
	l.node = NewNode(registers, l.options.Node, l.options.Note)
	return l.node, nil
}
