package cql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// A Statement is CQL text with a name under which it is counted. Statements are
// package variables or live as long as the session: the text is prepared once
// for each node, so it must not hold values. Tables are named without keyspace.
// It begins with its verb, and every column of the partition key is a bind
// marker: both are what lets it be sent to a replica.
type Statement struct {
	Name     string // snake_case, few different ones: a label of metrics
	Text     string
	PageSize int  // rows of a page, 0 means 5000; a page should stay below 4 MiB
	Scan     bool // reads more than one partition: has scan_timeout
	Prefetch bool // fetch a page while the one before is being read
}

// An Entry is one statement of a batch.
type Entry struct {
	Statement *Statement
	Args      []any
}

const defaultPageSize = 5000

// table finds the table that the text names, for messages.
func (st *Statement) table() string {
	words := strings.Fields(st.Text)
	for i, w := range words[:max(0, len(words)-1)] {
		switch strings.ToUpper(w) {
		case "FROM", "INTO", "UPDATE", "TABLE":
			for _, name := range words[i+1:] {
				switch strings.ToUpper(name) {
				case "IF", "NOT", "EXISTS":
					continue
				}
				name, _, _ = strings.Cut(name, "(")
				return name
			}
		}
	}
	return ""
}

// Exec executes a statement that writes. stampMS is the write timestamp, in
// milliseconds since the epoch, at every attempt; 0 is for statements that say
// USING TIMESTAMP. Bytes bound in args must not change until Exec returned.
func (s *Session) Exec(ctx context.Context, st *Statement, stampMS int64, args ...any) error {
	size := sizeOf(args)
	err := s.do(ctx, st, s.writes, size, s.timeout(st, true), func(ctx context.Context, d *gocql.Session) error {
		q := d.Query(st.Text, args...).Consistency(s.writeConsistency).Idempotent(true)
		return stamp(q, stampMS).ExecContext(ctx)
	})
	if err == nil {
		s.metrics.rows.WithLabelValues(st.Name).Inc()
	}
	return err
}

func stamp(q *gocql.Query, stampMS int64) *gocql.Query {
	if stampMS == 0 {
		return q.DefaultTimestamp(false)
	}
	return q.WithTimestamp(stampMS)
}

// maxEntries is a limit of the protocol.
const maxEntries = 65535

// Batch executes entries at once, all with the write timestamp stampMS; an entry
// whose text says USING TIMESTAMP keeps its own. All entries must be of one
// partition key, of one table or several: then the batch is applied as a whole
// by each replica, and has no other limit in size than 16 MiB. It is counted
// under the name of its first entry.
func (s *Session) Batch(ctx context.Context, stampMS int64, entries []Entry) error {
	switch {
	case len(entries) == 0:
		return nil
	case len(entries) == 1:
		return s.Exec(ctx, entries[0].Statement, stampMS, entries[0].Args...)
	case len(entries) > maxEntries:
		return &RefusedError{Statement: entries[0].Statement.Name, Table: entries[0].Statement.table(), Reason: BadArgument,
			Err: fmt.Errorf("batch of %d statements, at most %d", len(entries), maxEntries)}
	}
	size := 0
	for i := range entries {
		size += sizeOf(entries[i].Args)
	}
	st := entries[0].Statement
	err := s.do(ctx, st, s.writes, size, s.timeout(st, true), func(ctx context.Context, d *gocql.Session) error {
		b := d.Batch(gocql.UnloggedBatch).Consistency(s.writeConsistency)
		if stampMS == 0 {
			b.DefaultTimestamp(false)
		} else {
			b.WithTimestamp(stampMS)
		}
		b.Entries = make([]gocql.BatchEntry, len(entries))
		for i, e := range entries {
			b.Entries[i] = gocql.BatchEntry{Stmt: e.Statement.Text, Args: e.Args, Idempotent: true}
		}
		return b.ExecContext(ctx)
	})
	if err == nil {
		for _, e := range entries {
			s.metrics.rows.WithLabelValues(e.Statement.Name).Inc()
		}
	}
	return err
}

func (s *Session) timeout(st *Statement, write bool) time.Duration {
	switch {
	case st.Scan:
		return s.config.ScanTimeout
	case write:
		return s.config.WriteTimeout
	}
	return s.config.ReadTimeout
}

// maxPause bounds the pauses between attempts.
const maxPause = 2 * time.Second

// do runs f until it succeeds, fails for good, or attempts or ctx end. Room in l
// is held during attempts only.
func (s *Session) do(ctx context.Context, st *Statement, l *limiter, size int, timeout time.Duration, f func(context.Context, *gocql.Session) error) error {
	if s.options.Observe != nil {
		s.options.Observe(st.Name)
	}
	pause := s.config.RetryPause
	for n := 1; ; n++ {
		if err := l.acquire(ctx, size); err != nil {
			return fmt.Errorf("%s: waiting for statements before it: %w", st.Name, err)
		}
		start := s.now()
		err := s.attempt(ctx, timeout, f)
		c := classify(ctx, err)
		l.release(size, c)
		s.metrics.attempt(st, c, s.now().Sub(start))
		s.metrics.bytes.WithLabelValues(st.Name).Add(float64(size))
		s.note(c, err)
		if !c.retryable() || n >= s.config.Attempts || s.closed() {
			return s.told(ctx, st, err, c, n)
		}
		if !sleep(ctx, pause/2+rand.N(pause/2+1)) {
			return s.told(ctx, st, err, c, n)
		}
		pause = min(2*pause, maxPause)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt is what the driver's hooks find in the context of a statement.
type attempt struct {
	mu   sync.Mutex
	host string // id of the node it was sent to
}

type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func (a *attempt) setHost(id string) {
	a.mu.Lock()
	a.host = id
	a.mu.Unlock()
}

func (a *attempt) hostID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.host
}

// attempt runs f once, at most for timeout. While another node answers, it does
// not wait for one that has gone silent.
func (s *Session) attempt(ctx context.Context, timeout time.Duration, f func(context.Context, *gocql.Session) error) error {
	c, err := s.connection()
	if err != nil {
		return err
	}
	a := new(attempt)
	attemptCtx, cancel := context.WithCancelCause(context.WithValue(ctx, attemptKey{}, a))
	defer cancel(nil)
	deadline := time.Now().Add(timeout)
	var timer *time.Timer
	var mu sync.Mutex // orders the timer's first run behind its creation
	mu.Lock()
	timer = time.AfterFunc(min(timeout, s.config.StallAfter), func() {
		mu.Lock()
		defer mu.Unlock()
		left := time.Until(deadline)
		id := a.hostID()
		switch {
		case left <= 0:
			c.hosts.unanswered(id)
			cancel(errAttemptTimeout)
		case c.hosts.silent(id) && c.hosts.others(id, c.driver.GetHosts()):
			c.hosts.unanswered(id)
			cancel(errStalled)
		default:
			timer.Reset(min(left, s.config.StallAfter))
		}
	})
	mu.Unlock()
	err = f(attemptCtx, c.driver)
	timer.Stop()
	if err == nil {
		return nil
	}
	if cause := context.Cause(attemptCtx); errors.Is(cause, errAttemptTimeout) || errors.Is(cause, errStalled) {
		return fmt.Errorf("%w (node %s)", cause, c.address(a.hostID()))
	}
	return err
}

// Decide executes an INSERT ... IF NOT EXISTS, which only one of all sessions
// wins, and returns the text in the given column of the row that is there
// afterwards: mine, if this session won. It costs several rounds among the
// replicas and writes with a timestamp of the server: for decisions made once.
func (s *Session) Decide(ctx context.Context, st *Statement, column, mine string, args ...any) (string, error) {
	serial := gocql.Serial
	if s.writeConsistency == gocql.LocalOne || s.writeConsistency == gocql.LocalQuorum {
		serial = gocql.LocalSerial
	}
	value := mine
	err := s.do(ctx, st, s.writes, sizeOf(args), s.timeout(st, true), func(ctx context.Context, d *gocql.Session) error {
		there := make(map[string]any)
		applied, err := d.Query(st.Text, args...).Consistency(s.writeConsistency).SerialConsistency(serial).
			Idempotent(true).DefaultTimestamp(false).MapScanCASContext(ctx, there)
		if err != nil || applied {
			return err
		}
		text, ok := there[column].(string)
		if !ok {
			return fmt.Errorf("cannot unmarshal column %s of the row that is there", column)
		}
		value = text
		return nil
	})
	return value, err
}
