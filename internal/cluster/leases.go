package cluster

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
)

// Options are the dependencies of [Leases].
type Options struct {
	Node string // the id of the server, which remains the same after a restart

	// Open returns the session of the keyspace that has the leases, and whether to create the
	// table there if it is missing; or why there can be no session now. It is called for each
	// lease. The session must always be the same one.
	Open func() (session *cql.Session, create bool, err error)

	// Without is a text for the log: the consequences, for the work under the leases, if there can
	// be no leases.
	Without string

	Log *slog.Logger
}

// Leases are the leases of a process whose keyspace may become reachable only later, or may
// lack the table for leases. Many goroutines may use them at once.
type Leases struct {
	options Options
	without sync.Once // limits the log line about the missing table

	mu   sync.Mutex
	node *Node // nil until the table is open
}

// NewLeases returns leases. It does no I/O.
func NewLeases(o Options) *Leases { return &Leases{options: o} }

// Acquire is [Node.Acquire]. It returns nil without an error if there can be no leases: the table
// is missing and may not be created, or the user has no right to it.
func (l *Leases) Acquire(ctx context.Context, name string, life time.Duration) (*Lease, error) {
	return l.get(ctx, func(n *Node) (*Lease, error) { return n.Acquire(ctx, name, life) })
}

// Reacquire is [Node.Reacquire]. Like Acquire, it returns nil without an error if there can be no
// leases.
func (l *Leases) Reacquire(ctx context.Context, name string, life time.Duration) (*Lease, error) {
	return l.get(ctx, func(n *Node) (*Lease, error) { return n.Reacquire(ctx, name, life) })
}

func (l *Leases) get(ctx context.Context, from func(*Node) (*Lease, error)) (*Lease, error) {
	session, create, err := l.options.Open()
	if err != nil {
		return nil, err
	}
	node, err := l.open(ctx, session, create)
	if err == nil {
		var lease *Lease
		if lease, err = from(node); err == nil {
			return lease, nil
		}
	}
	if cql.IsRefused(err, cql.NoSuchTable) { // it was there: not all nodes know it yet, or it was dropped
		l.mu.Lock()
		defer l.mu.Unlock()
		l.node = nil // the next lease looks for the table again
		return nil, err
	}
	if errors.As(err, new(*cql.TableError)) || errors.As(err, new(*cql.RefusedError)) {
		l.without.Do(func() {
			l.options.Log.Warn("servers have no leases and cannot exclude each other; "+l.options.Without, "error", err)
		})
		return nil, nil
	}
	return nil, err
}

func (l *Leases) open(ctx context.Context, session *cql.Session, create bool) (*Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node != nil {
		return l.node, nil
	}
	registers, err := OpenRegisters(ctx, session, create)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // for people
	l.node = NewNode(registers, l.options.Node, host)
	return l.node, nil
}
