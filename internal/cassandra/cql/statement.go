package cql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/work"
)

// A Statement is CQL text with a name for metrics. Statements should be package variables or
// live as long as the session: the text is prepared once for each node, so it must not contain
// values. The text begins with its verb, and every column of the partition key is a bind
// marker; both are necessary for sending it to a replica. It names tables without keyspace; the
// session adds its keyspace: see qualified. Arguments of the type int64 are for columns of bigint
// and timestamp, those of the type int for int.
type Statement struct {
	Name     string // snake_case; a label of metrics, so there must be few different ones
	Text     string
	PageSize int  // rows per page, for at most 4 MiB; 0 is for rows that may be long: pages of about 1 MiB
	RowBytes int  // longest possible row, for rows that may be much longer than row keys, without PageSize: pages are short, and share pageRoom
	Many     bool // a request may execute it a hundred times at once: without PageSize, its first page is shorter
	Scan     bool // reads more than one partition, with scan_timeout
	Level    Level
	Prefetch bool // fetch a page while the previous one is being read
	Prompt   bool // a write that fails during an outage as reads do, because its caller waits and retries
	KeyArgs  int  // number of leading arguments that are the partition key, in order, or 1 for a list of keys of one column: see ReplicaSet
}

// An Entry is one statement of a batch.
type Entry struct {
	Statement *Statement
	Args      []any
}

// table returns the table in the text, for messages.
func (st *Statement) table() string {
	if found := tableAt.FindStringSubmatch(st.Text); found != nil {
		return found[1]
	}
	return ""
}

// qualified returns the text with the keyspace before the table's name, unless it already has
// one.
//
// Otherwise the connection's keyspace would be used, which is unsafe: a Cassandra node that
// starts after others, and does not know their versions yet, assigns a text without keyspace
// the same id for all keyspaces (CASSANDRA-15252 is about this). The table is then that of the
// keyspace that prepared the text first: the samples of one keyspace would be written to, and
// read from, another keyspace of the cluster.
func (st *Statement) qualified(keyspace string) string {
	at := tableAt.FindStringSubmatchIndex(st.Text)
	if at == nil || strings.Contains(st.Text[at[2]:at[3]], ".") {
		return st.Text
	}
	return st.Text[:at[2]] + `"` + keyspace + `".` + st.Text[at[2]:]
}

var tableAt = regexp.MustCompile(`(?i)\b(?:FROM|INTO|UPDATE|TABLE(?:\s+IF(?:\s+NOT)?\s+EXISTS)?)\s+([\w.]+)`)

// text returns the qualified text of a statement, from a cache.
func (s *Session) text(st *Statement) string {
	if text, ok := s.texts.Load(st); ok {
		return text.(string)
	}
	text := st.qualified(s.config.Keyspace)
	s.texts.Store(st, text)
	return text
}

// Exec executes a statement that writes. stampMS is the write timestamp of every attempt, in
// milliseconds since the epoch; 0 is for statements with USING TIMESTAMP. Bytes in args must
// not change until Exec has returned.
func (s *Session) Exec(ctx context.Context, st *Statement, stampMS int64, args ...any) error {
	if err := checkTexts(args); err != nil {
		return err
	}
	err := s.do(ctx, call{st: st, kind: writes, size: sizeOf(args), run: func(ctx context.Context, d *gocql.Session) error {
		q := d.Query(s.text(st), args...).Consistency(s.levels[writes][st.Level]).Idempotent(true)
		return stamp(q, stampMS).ExecContext(ctx)
	}})
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

// Batch executes entries as one batch with the write timestamp stampMS; entries with USING
// TIMESTAMP keep their own. It is counted under the name of its first entry, and uses that
// entry's level.
//
// Entries with the same partition key, of one table or several, are applied atomically by each
// replica; the only limit of the size of a batch of one partition is 16 MiB. A batch of several
// partitions should have few partitions, with the same ReplicaSet, and stay below JoinedBytes:
// Cassandra does not apply it atomically, and by default logs a warning from 5 KiB or 11
// partitions on, and refuses it from 50 KiB on.
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
		if err := checkTexts(entries[i].Args); err != nil {
			return err
		}
		size += sizeOf(entries[i].Args)
	}
	st, sent := entries[0].Statement, entries
	var payload map[string][]byte
	if p, ok := pack(entries); ok && !s.config.Compression { // the payload cannot be seen in compressed frames
		var done func()
		payload, done = s.packed.add(p)
		defer done()
		sent = p.forDriver()
	}
	err := s.do(ctx, call{st: st, kind: writes, size: size, run: func(ctx context.Context, d *gocql.Session) error {
		b := d.Batch(gocql.UnloggedBatch).Consistency(s.levels[writes][st.Level])
		b.CustomPayload = payload
		if stampMS == 0 {
			b.DefaultTimestamp(false)
		} else {
			b.WithTimestamp(stampMS)
		}
		b.Entries = make([]gocql.BatchEntry, len(sent))
		for i, e := range sent {
			b.Entries[i] = gocql.BatchEntry{Stmt: s.text(e.Statement), Args: e.Args, Idempotent: true}
		}
		return b.ExecContext(ctx)
	}})
	if err == nil {
		s.metrics.written(entries)
	}
	return err
}

// timeout returns the timeout of each attempt of a statement.
func (s *Session) timeout(st *Statement, k kind) time.Duration {
	switch {
	case st.Scan:
		return s.config.ScanTimeout
	case k == writes:
		return s.config.WriteTimeout
	}
	return s.config.ReadTimeout
}

// maxPause bounds the pauses between attempts, and maxGracePause those of a statement that
// waits for a node to come back.
const (
	maxPause      = 2 * time.Second
	maxGracePause = 200 * time.Millisecond
)

// A call is one execution of a statement, in one or several attempts.
type call struct {
	st      *Statement
	kind    kind
	size    int           // of the arguments, in bytes
	timeout time.Duration // of each attempt; 0 means that of the statement
	room    int           // bytes that the answer may have, of pageRoom; 0 if they do not count
	hedged  bool          // a read that an attempt may run twice concurrently
	lasting bool          // counts as in flight until the node answers, even if the caller leaves: see await
	gone    func() error  // returns an error once the caller has left; set by try
	pinned  bool          // run chooses the node, and waits for it: no other may be used
	run     func(context.Context, *gocql.Session) error
}

// do runs a call until it succeeds, fails permanently, ctx ends, or the number of attempts is
// reached. The statement counts as in flight during attempts only. While no node answers, a
// read is retried for outage_grace, and after that fails at once; a write that is not Prompt is
// tried nevertheless.
func (s *Session) do(ctx context.Context, c call) error {
	st, k := c.st, c.kind
	if c.timeout == 0 {
		c.timeout = s.timeout(st, k)
	}
	if s.options.Observe != nil {
		s.options.Observe(st.Name)
	}
	pause, began, before := s.config.RetryPause, s.now(), ""
	for n := 1; ; n++ {
		a := &attempt{statement: st.Name, kind: k, scan: st.Scan, pinned: c.pinned, patient: k == writes && !st.Prompt, hasty: k == reads && !st.Scan && n <= hastyAttempts, avoid: before}
		took, err := s.try(ctx, c, a)
		before, _ = a.node()
		if errors.As(err, new(*waitError)) || errors.As(err, new(*work.PanicError)) { // not a fault of the nodes
			return fmt.Errorf("%s: %w", st.Name, err)
		}
		cl := classify(ctx, err)
		s.metrics.attempt(st, cl, took)
		s.note(cl, err)
		again, longest := cl.retryable() && n < s.config.Attempts, maxPause
		if !a.patient && (cl == classNoHost || cl == classTransport) {
			// A recent outage is reported as such once outage_grace is over.
			again, longest = again || s.now().Sub(began) < s.config.OutageGrace || !s.State().Connected, maxGracePause
			if away := s.outage(); away != nil {
				again, err, cl = false, away, classNoHost
			}
		}
		if !again || s.closed() || work.Pause(ctx, pause/2+rand.N(pause/2+1)) != nil {
			return s.told(ctx, st, err, cl, n)
		}
		pause = min(2*pause, longest)
	}
}

// hastyAttempts is how many attempts of a read are abandoned after stall_after if a node was
// lost recently: the coordinator may be waiting for that node, for up to 5 s, until it has
// noticed the loss.
const hastyAttempts = 2

// try makes an attempt of a call, as soon as the limits of statements in flight permit.
func (s *Session) try(ctx context.Context, c call, a *attempt) (took time.Duration, err error) {
	release, err := s.admit(ctx, c, a)
	if err != nil {
		return 0, &waitError{err}
	}
	if !a.patient {
		if err := s.outage(); err != nil {
			release()
			return 0, err
		}
	}
	start := s.now()
	c.gone = ctx.Err
	run := func(ctx context.Context) error {
		defer release()
		if c.hedged {
			return s.hedged(ctx, c, a)
		}
		return s.attempt(ctx, a, c.timeout, c.run)
	}
	if c.lasting {
		err = s.await(ctx, release, run)
	} else {
		err = run(ctx)
	}
	s.metrics.bytes.WithLabelValues(c.st.Name).Add(float64(c.size))
	return s.now().Sub(start), err
}

// admit waits until a call may be in flight. release undoes it.
func (s *Session) admit(ctx context.Context, c call, a *attempt) (release func(), err error) {
	if c.room > 0 {
		if err := s.pages.acquire(ctx, c.room); err != nil {
			return nil, err
		}
	}
	leave := func() {
		if c.room > 0 {
			s.pages.release(c.room)
		}
	}
	l := s.limiters[a.kind]
	if err := l.acquire(ctx, c.size); err != nil {
		leave()
		return nil, err
	}
	return func() {
		l.release(c.size)
		leave()
	}, nil
}

// await executes run, which calls release, and returns when run or ctx has ended. A node continues with a
// statement whose caller has left, so the statement counts as in flight until the node has answered.
// Otherwise, clients that cancel and repeat their requests could fill the node's queue without bound.
func (s *Session) await(ctx context.Context, release func(), run func(context.Context) error) error {
	done := make(chan error, 1)
	if !s.spawn(func() {
		done <- work.Do("execute a statement", func() error { return run(s.ctx) })
	}) {
		release()
		return gocql.ErrSessionClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attempt is the state of one attempt, which the driver's hooks find in the context of a
// statement.
type attempt struct {
	statement string
	kind      kind
	scan      bool   // says nothing about the node's pace
	pinned    bool   // see call
	patient   bool   // continues although no node answers
	hasty     bool   // does not wait for a coordinator that waits for another node
	avoid     string // id of the previous attempt's node, used only if there is no other
	hedge     bool   // only for a replica that is below its limit and is not avoid

	mu      sync.Mutex
	host    string // id of the node to which it was sent, empty before
	replica bool   // that node is a replica of the statement's partition
}

type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func (a *attempt) sentTo(id string, replica bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.host, a.replica = id, replica
}

func (a *attempt) node() (id string, replica bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.host, a.replica
}

// attempt runs f once, for at most timeout. While another node answers, it does not wait for a
// silent node. While no node answers, it waits for at most outage_grace, unless a is patient.
func (s *Session) attempt(ctx context.Context, a *attempt, timeout time.Duration, f func(context.Context, *gocql.Session) error) error {
	c, err := s.connection()
	if err != nil {
		return err
	}
	attemptCtx, cancel := context.WithCancelCause(context.WithValue(ctx, attemptKey{}, a))
	defer cancel(nil)
	began := time.Now()
	step := s.config.StallAfter / 2
	var timer *time.Timer
	var mu sync.Mutex // makes the timer's first run wait until timer is set
	mu.Lock()
	timer = time.AfterFunc(min(timeout, step), func() {
		mu.Lock()
		defer mu.Unlock()
		waited := time.Since(began)
		if err := s.hopeless(c, a, waited, timeout); err != nil {
			cancel(err)
			return
		}
		s.probe(c, step/2) // so that each step sends a new probe
		timer.Reset(min(timeout-waited, step))
	})
	mu.Unlock()
	err = f(attemptCtx, c.driver)
	timer.Stop()
	if err == nil {
		return nil
	}
	if cause := context.Cause(attemptCtx); isGivenUp(cause) {
		id, _ := a.node()
		return fmt.Errorf("%w (node %s)", cause, c.address(id))
	}
	return err
}

// hopeless returns why an attempt that has waited for this long should be abandoned, nil if it
// should not.
func (s *Session) hopeless(c *connection, a *attempt, waited, timeout time.Duration) error {
	id, _ := a.node()
	if waited >= timeout {
		c.hosts.unanswered(id)
		return errAttemptTimeout
	}
	if a.pinned {
		return nil
	}
	silent, _ := c.hosts.look(id, a.kind)
	if silent || id == "" && waited >= s.config.StallAfter {
		if c.hosts.others(id, c.driver.GetHosts()) {
			// Without an id, the driver is still preparing the statement at some node, which
			// does not answer.
			c.hosts.unanswered(id)
			return errStalled
		}
		s.silence(c.hosts)
	}
	if a.hasty && waited >= s.config.StallAfter && c.hosts.lostLately() && c.hosts.others(id, c.driver.GetHosts()) {
		return errWaits
	}
	if !a.patient {
		return s.outage()
	}
	return nil
}

// isGivenUp reports whether an attempt ended because attempt abandoned it.
func isGivenUp(cause error) bool {
	return errors.Is(cause, errAttemptTimeout) || errors.Is(cause, errStalled) || errors.Is(cause, errWaits) || errors.As(cause, new(*outage))
}

// Decide executes an INSERT ... IF NOT EXISTS, which succeeds for only one of all sessions, and
// returns the text in the given column of the resulting row: mine, if it succeeded for this
// session. It takes several round trips among the replicas and writes with a timestamp of the
// server, so it is for decisions made once.
func (s *Session) Decide(ctx context.Context, st *Statement, column, mine string, args ...any) (string, error) {
	serial := gocql.Serial
	if s.levels[writes][Configured] == gocql.LocalOne || s.levels[writes][Configured] == gocql.LocalQuorum {
		serial = gocql.LocalSerial
	}
	applied, there, err := s.transact(ctx, st, s.levels[writes][Configured], serial, args)
	if err != nil || applied {
		return mine, err
	}
	text, ok := there[column].(string)
	if !ok {
		return mine, s.told(ctx, st, &misfit{fmt.Sprintf("column %s of the existing row is not text", column)}, classRefused, 1)
	}
	return text, nil
}

// Swap executes a statement with IF, which is applied only if its condition is true, atomically
// among the sessions of all data centers. If the condition is false, there has the present
// values of its columns, by name; it is empty if there is no such row.
//
// A statement may have been applied although an attempt failed; the next attempt then finds
// that write. The caller can recognise it by the values that it has written.
func (s *Session) Swap(ctx context.Context, st *Statement, args ...any) (applied bool, there map[string]any, err error) {
	return s.transact(ctx, st, gocql.Quorum, gocql.Serial, args)
}

func (s *Session) transact(ctx context.Context, st *Statement, commit, serial gocql.Consistency, args []any) (applied bool, there map[string]any, err error) {
	if err := checkTexts(args); err != nil {
		return false, nil, err
	}
	err = s.do(ctx, call{st: st, kind: writes, size: sizeOf(args), run: func(ctx context.Context, d *gocql.Session) error {
		there = make(map[string]any)
		var err error
		applied, err = d.Query(s.text(st), args...).Consistency(commit).SerialConsistency(serial).
			Idempotent(true).DefaultTimestamp(false).MapScanCASContext(ctx, there)
		return err
	}})
	return applied, there, err
}
