package events

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cluster"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/work"
)

// Options are the dependencies of a shelf.
type Options struct {
	// Node is the id of the server, which remains the same after a restart. Host is for people.
	Node, Host string

	// Usable returns why the session must not be used now, nil while it may be used. A nil
	// Usable means that it always may be.
	Usable func() error

	// Create says whether to create missing tables.
	Create bool

	Log *slog.Logger
	Now func() time.Time // nil = time.Now
}

// A Shelf is a timeline.Shelf over a keyspace. It may be used before Cassandra is reached;
// until then, calls fail with a *store.UnavailableError.
type Shelf struct {
	session *cql.Session
	log     *slog.Logger
	now     func() time.Time
	usable  func() error
	stamps  atomic.Int64 // the last write timestamp, microseconds

	ready  atomic.Pointer[cluster.Registers] // nil until the tables exist
	reason atomic.Pointer[error]             // why they are not ready

	leader atomic.Pointer[cluster.Leader]

	count    counted
	arrivals arrivalLogs
	spots    spots

	ctx   context.Context // ends at Close, under mu
	stop  context.CancelFunc
	mu    sync.Mutex // guards starting tasks
	tasks sync.WaitGroup
}

var _ timeline.Shelf = (*Shelf)(nil)

// Open returns a shelf over the session's keyspace, which need not exist yet. The session must
// outlive the shelf.
func Open(session *cql.Session, o Options) *Shelf {
	s := &Shelf{session: session, log: o.Log, now: o.Now, usable: o.Usable}
	s.log = cmp.Or(s.log, slog.New(slog.DiscardHandler))
	if s.now == nil {
		s.now = time.Now
	}
	if s.usable == nil {
		s.usable = func() error { return nil }
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	unreached := fmt.Errorf("keyspace %s has not been reached yet", session.KeyspaceName())
	s.reason.Store(&unreached)
	s.arrivals.open(s, logOf(o.Node))
	s.spawn(func() {
		if s.reach(o.Create) {
			leader := cluster.NewNode(s.ready.Load(), o.Node, o.Host).NewLeader("timelines", leadFor)
			s.leader.Store(leader)
			leader.Run(s.ctx)
		}
	})
	return s
}

// leadFor is how long a server that has died still counts as the leader.
const leadFor = time.Minute

// Leads reports whether this server maintains the timelines now.
func (s *Shelf) Leads() bool {
	leader := s.leader.Load()
	return leader != nil && leader.Leads()
}

// logOf returns the number of a server's log of arrivals.
func logOf(node string) int32 {
	h := fnv.New32a()
	h.Write([]byte(node))
	return int32(h.Sum32())
}

// quietTries are attempts to open the tables whose failure is not logged, about two seconds:
// each start waits a moment for the connection.
const quietTries = 3

// reach opens the tables, retrying until the shelf is closed. It reports whether they are open.
func (s *Shelf) reach(create bool) bool {
	logged := ""
	for tries, wait := 1, time.Second/4; ; tries, wait = tries+1, min(2*wait, 15*time.Second) {
		registers, err := s.openTables(create)
		if err == nil {
			s.ready.Store(registers)
			return true
		}
		if s.ctx.Err() != nil {
			return false
		}
		s.reason.Store(&err)
		if text := err.Error(); tries > quietTries && text != logged {
			s.log.Warn("the tables of timelines cannot be used; trying again", "error", err)
			logged = text
		}
		if work.Pause(s.ctx, wait) != nil {
			return false
		}
	}
}

func (s *Shelf) openTables(create bool) (*cluster.Registers, error) {
	if err := s.session.WaitKeyspace(s.ctx); err != nil {
		return nil, err
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	if err := s.session.MakeTables(s.ctx, create, Page, Tables...); err != nil {
		return nil, err
	}
	return cluster.OpenRegisters(s.ctx, s.session, create)
}

// WaitReady waits until the tables exist.
func (s *Shelf) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.ready.Load() == nil {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return store.ErrClosed
		case <-ctx.Done():
			return s.check()
		}
	}
	return nil
}

// check returns why the shelf cannot be used now.
func (s *Shelf) check() error {
	switch {
	case s.ctx.Err() != nil:
		return store.ErrClosed
	case s.ready.Load() == nil:
		return &store.UnavailableError{Reason: "timelines cannot be used yet", Err: *s.reason.Load()}
	}
	return s.usable()
}

// spawn runs f in the background and returns true, or returns false if the shelf is closed.
func (s *Shelf) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.tasks.Go(f)
	return true
}

// Close ends the shelf.
func (s *Shelf) Close() error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.tasks.Wait()
	return nil
}

// stamp returns the write timestamp of the present time. It never decreases.
func (s *Shelf) stamp() int64 {
	for {
		last := s.stamps.Load()
		next := max(s.now().UnixMicro(), last)
		if s.stamps.CompareAndSwap(last, next) {
			return next
		}
	}
}

// stampOr returns the write timestamp of a time, or now if the time is zero.
func stampOr(now int64, at time.Time) int64 {
	if at.IsZero() {
		return now
	}
	return at.UnixMicro()
}
