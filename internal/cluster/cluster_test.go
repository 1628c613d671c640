package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
)

func open(t *testing.T, session *cql.Session) *Registers {
	t.Helper()
	registers, err := OpenRegisters(t.Context(), session, true)
	if err != nil {
		t.Fatal(err)
	}
	return registers
}

// All tests share one keyspace, since creating and dropping one takes seconds.
func TestCluster(t *testing.T) {
	session := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	testNoLeases(t, session)
	testTable(t, session)
	registers := open(t, session)
	for name, test := range map[string]func(*testing.T, *Registers){
		"swaps exclude":                  testSwapsExclude,
		"swap tells values apart":        testSwapTellsValuesApart,
		"swap in time":                   testSwapInTime,
		"remove":                         testRemove,
		"unreadable lease":               testUnreadableLease,
		"a lease that cannot be read":    testLeaseThatCannotBeRead,
		"leases":                         testLeases,
		"a holder whose clock is ahead":  testHolderAhead,
		"a renewal whose answer is lost": testRenewalWhoseAnswerIsLost,
		"reacquired":                     testReacquired,
		"one holder":                     testOneHolder,
		"keep":                           testKeep,
		"leader":                         testLeader,
		"leases of two servers":          func(t *testing.T, _ *Registers) { testLeasesOfTwo(t, session) },
		"a frozen holder finds it lost":  testFrozenHolder,
	} {
		t.Run(name, func(t *testing.T) { test(t, registers) })
	}
	testLeasesWhileTableIsMissing(t, session)
}

// A restarted server gets its former lease at once. If its earlier process were still running,
// that process would find the lease lost. Other servers wait.
func testReacquired(t *testing.T, registers *Registers) {
	name := t.Name()
	before, err := NewNode(registers, "a", "").Acquire(t.Context(), name, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	held := (*HeldError)(nil)
	if _, err := NewNode(registers, "b", "").Reacquire(t.Context(), name, time.Minute); !errors.As(err, &held) || held.By.Node != "a" {
		t.Errorf("another server: %v", err)
	}
	if _, err := NewNode(registers, "a", "").Acquire(t.Context(), name, time.Minute); !errors.As(err, &held) {
		t.Errorf("acquired: %v", err)
	}
	after, err := NewNode(registers, "a", "").Reacquire(t.Context(), name, time.Minute)
	if err != nil || after.Token <= before.Token {
		t.Fatalf("token %v after %d, %v", after, before.Token, err)
	}
	if err := before.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("the one before renews it: %v", err)
	}
	if err := after.Renew(t.Context()); err != nil {
		t.Error(err)
	}
}

// Concurrent increments are each counted once.
func testSwapsExclude(t *testing.T, registers *Registers) {
	const writers, each = 6, 5
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				countUp(t, registers)
			}
		})
	}
	all.Wait()
	v, err := registers.Get(t.Context(), t.Name(), "count")
	if err != nil {
		t.Fatal(err)
	}
	if n := binary.BigEndian.Uint64(v.Data); n != writers*each {
		t.Errorf("counted %d of %d", n, writers*each)
	}
	if since := time.Since(v.Written); since < -time.Hour || since > time.Hour {
		t.Errorf("written at %v", v.Written)
	}
}

func countUp(t *testing.T, registers *Registers) {
	for {
		old, err := registers.Get(t.Context(), t.Name(), "count")
		if err != nil {
			t.Error(err)
			return
		}
		data := make([]byte, 8)
		if old.Version != 0 {
			binary.BigEndian.PutUint64(data, binary.BigEndian.Uint64(old.Data))
		}
		binary.BigEndian.PutUint64(data, binary.BigEndian.Uint64(data)+1)
		v, err := registers.Swap(t.Context(), t.Name(), "count", old, data, 0)
		if err == nil && v.Version <= old.Version {
			t.Errorf("version %d after %d", v.Version, old.Version)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, ErrChanged) {
			t.Error(err)
			return
		}
	}
}

// Another process's value with the same version is not replaced.
func testSwapTellsValuesApart(t *testing.T, registers *Registers) {
	mine, err := registers.Swap(t.Context(), t.Name(), "x", Value{}, []byte("mine"), 0)
	if err != nil {
		t.Fatal(err)
	}
	other := Value{Version: mine.Version, nonce: "other"}
	if _, err := registers.Swap(t.Context(), t.Name(), "x", other, []byte("other"), 0); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if _, err := registers.Swap(t.Context(), t.Name(), "x", Value{}, []byte("first"), 0); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if _, err := registers.Swap(t.Context(), t.Name(), "x", mine, []byte("second"), 0); err != nil {
		t.Error(err)
	}
}

// A swap whose intent has expired is not applied.
func testSwapInTime(t *testing.T, registers *Registers) {
	first, err := registers.Swap(t.Context(), t.Name(), "x", Value{}, []byte("first"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registers.SwapInTime(t.Context(), t.Name(), "x", first, []byte("never"), 0); err == nil {
		t.Error("swapped in time without a deadline")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	second, err := registers.SwapInTime(ctx, t.Name(), "x", first, []byte("second"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registers.SwapInTime(ctx, t.Name(), "x", first, []byte("never"), 0); !errors.Is(err, ErrChanged) {
		t.Errorf("of an old value: %v", err)
	}
	intent, err := registers.intend(t.Context(), t.Name(), "x", second, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for there := &intent; there != nil; { // as a process that is stopped now
		st := &cql.Statement{Name: "test", Level: cql.Serial, Text: "SELECT intent FROM varve_registers WHERE space = ? AND name = ?"}
		if _, err := registers.session.One(t.Context(), st, []any{t.Name(), "x"}, &there); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := registers.send(t.Context(), swapIntended, change{t.Name(), "x", second, registers.next(second), []byte("too late"), 0}, intent); !errors.Is(err, ErrChanged) {
		t.Errorf("too late: %v", err)
	}
	if v, err := registers.Get(t.Context(), t.Name(), "x"); err != nil || string(v.Data) != "second" {
		t.Errorf("%q, %v", v.Data, err)
	}
}

// Remove removes the given value only. A value that is gone is not an error.
func testRemove(t *testing.T, registers *Registers) {
	mine, err := registers.Swap(t.Context(), t.Name(), "x", Value{}, []byte("mine"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := registers.Remove(t.Context(), t.Name(), "x", Value{Version: mine.Version, nonce: "other"}); !errors.Is(err, ErrChanged) {
		t.Errorf("another value: %v", err)
	}
	if v, err := registers.Get(t.Context(), t.Name(), "x"); err != nil || string(v.Data) != "mine" {
		t.Errorf("%q, %v", v.Data, err)
	}
	for range 2 {
		if err := registers.Remove(t.Context(), t.Name(), "x", mine); err != nil {
			t.Error(err)
		}
		if v, err := registers.Get(t.Context(), t.Name(), "x"); err != nil || v.Version != 0 {
			t.Errorf("%q is left, %v", v.Data, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := registers.Remove(ended, t.Name(), "x", mine); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left: %v", err)
	}
}

// A lease in a format of a later version is not taken over.
func testUnreadableLease(t *testing.T, registers *Registers) {
	before, err := registers.Swap(t.Context(), leases, t.Name(), Value{}, []byte("later"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n := NewNode(registers, "a", "")
	for _, acquire := range []func(context.Context, string, time.Duration) (*Lease, error){n.Acquire, n.Reacquire} {
		if _, err := acquire(t.Context(), t.Name(), time.Minute); err == nil || !strings.Contains(err.Error(), "this version of Varve cannot read what is stored") {
			t.Errorf("acquired: %v", err)
		}
	}
	if v, err := registers.Get(t.Context(), leases, t.Name()); err != nil || v.Version != before.Version {
		t.Errorf("%q is stored, %v", v.Data, err)
	}
}

// If a holder cannot read whether it still has its lease, the lease is not lost yet.
func testLeaseThatCannotBeRead(t *testing.T, registers *Registers) {
	lease, err := nodeAt(registers, "a", newClock()).Acquire(t.Context(), t.Name(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if own, err := lease.own(ended); own || !errors.Is(err, context.Canceled) {
		t.Errorf("own %v, %v", own, err)
	}
	if err := lease.Renew(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("renewed: %v", err)
	}
	if err := errors.Join(lease.Check(), lease.Renew(t.Context())); err != nil {
		t.Error(err)
	}
}

// A clock that tests set.
type clock struct {
	sync.Mutex
	t time.Time
}

func (c *clock) now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.t = c.t.Add(d)
}

func newClock() *clock { return &clock{t: time.UnixMilli(1_790_000_000_000)} }

func nodeAt(registers *Registers, id string, c *clock) *Node {
	n := NewNode(registers, id, "machine")
	n.now = c.now
	return n
}

// Another process gets a lease, with a larger token, Skew after its end, or at once when it is
// released.
func testLeases(t *testing.T, registers *Registers) {
	c := newClock()
	a, b := nodeAt(registers, "a", c), nodeAt(registers, "b", c)
	first, err := a.Acquire(t.Context(), t.Name(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	held := (*HeldError)(nil)
	for _, wait := range []time.Duration{0, time.Minute, Skew} {
		c.add(wait)
		if _, err := b.Acquire(t.Context(), t.Name(), time.Minute); !errors.As(err, &held) || held.By.Node != "a" {
			t.Errorf("after %v more: %v", wait, err)
		}
	}
	if err := first.Check(); !errors.Is(err, ErrLost) {
		t.Errorf("after its life: %v", err)
	}
	if err := first.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("renewed after its life: %v", err)
	}
	c.add(time.Millisecond)
	second, err := b.Acquire(t.Context(), t.Name(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c.add(50 * time.Second)
	if err := second.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.add(50 * time.Second)
	if err := second.Check(); err != nil {
		t.Errorf("50 s after it was renewed: %v", err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.Check(); !errors.Is(err, ErrLost) {
		t.Errorf("after its release: %v", err)
	}
	third, err := a.Acquire(t.Context(), t.Name(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if first.Token >= second.Token || second.Token >= third.Token {
		t.Errorf("tokens %d, %d, %d", first.Token, second.Token, third.Token)
	}
	if err := first.Release(t.Context()); err != nil || third.Check() != nil {
		t.Errorf("the release of an old lease: %v, and the new one: %v", err, third.Check())
	}
}

// A holder whose clock is hours ahead keeps its lease while it renews it. When it stops
// renewing, another process gets the lease as soon as that of any other holder, and the first
// holder finds it lost.
func testHolderAhead(t *testing.T, registers *Registers) {
	c, ahead := newClock(), newClock()
	ahead.add(3 * time.Hour)
	pass := func(d time.Duration) { c.add(d); ahead.add(d) }
	lease, err := nodeAt(registers, "a", ahead).Acquire(t.Context(), t.Name(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	b, held := nodeAt(registers, "b", c), (*HeldError)(nil)
	for i := range 6 {
		if _, err := b.Acquire(t.Context(), t.Name(), time.Minute); !errors.As(err, &held) {
			t.Fatalf("while it is renewed: %v", err)
		}
		pass(40 * time.Second)
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatalf("renewal %d: %v", i, err)
		}
	}
	for _, wait := range []time.Duration{0, time.Minute, Skew} {
		pass(wait)
		if _, err := b.Acquire(t.Context(), t.Name(), time.Minute); !errors.As(err, &held) {
			t.Fatalf("%v later: %v", wait, err)
		}
	}
	pass(time.Millisecond)
	if err := lease.Check(); !errors.Is(err, ErrLost) {
		t.Errorf("after its life: %v", err)
	}
	if _, err := b.Acquire(t.Context(), t.Name(), time.Minute); err != nil {
		t.Errorf("after its life and %v: %v", Skew, err)
	}
	if err := lease.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("renewed after another one got it: %v", err)
	}
}

// A renewal that returned an error but was applied does not lose the lease.
func testRenewalWhoseAnswerIsLost(t *testing.T, registers *Registers) {
	c := newClock()
	lease, err := nodeAt(registers, "a", c).Acquire(t.Context(), t.Name(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	before := lease.value
	c.add(time.Second)
	if err := lease.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease.value = before // as after an error
	c.add(59 * time.Second)
	if err := lease.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.add(59 * time.Second)
	if err := lease.Check(); err != nil {
		t.Error(err)
	}
}

// If many processes want a lease at once, one gets it.
func testOneHolder(t *testing.T, registers *Registers) {
	var mu sync.Mutex
	var got int
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := NewNode(registers, "n", "").Acquire(t.Context(), t.Name(), time.Minute)
			held := (*HeldError)(nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				got++
			case !errors.Is(err, ErrChanged) && !errors.As(err, &held):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got != 1 {
		t.Errorf("%d hold the lease", got)
	}
}

// Work under a lease ends when the lease is lost, and the lease is free after the work has
// ended by itself.
func testKeep(t *testing.T, registers *Registers) {
	node := NewNode(registers, "a", "")
	lease, err := node.Acquire(t.Context(), t.Name(), 400*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	err = lease.Keep(t.Context(), func(ctx context.Context) error {
		v, err := registers.Get(ctx, leases, t.Name())
		for err == nil {
			if _, err = registers.Swap(ctx, leases, t.Name(), v, []byte(`{"holder":"another"}`), 0); err == nil {
				break
			}
			v, err = registers.Get(ctx, leases, t.Name()) // it was renewed meanwhile
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, ErrLost) {
		t.Errorf("the work ended by %v", err)
	}
	lease, err = node.Acquire(t.Context(), t.Name()+" 2", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Keep(t.Context(), func(context.Context) error { panic("broken") }); err == nil {
		t.Error("a panic under a lease is no error")
	}
	if _, err := node.Acquire(t.Context(), t.Name()+" 2", time.Minute); err != nil {
		t.Error(err)
	}
}

// One of several candidates leads; when it ends, another one leads.
func testLeader(t *testing.T, registers *Registers) {
	var leaders []*Leader
	var stops []context.CancelFunc
	var running sync.WaitGroup
	for _, id := range []string{"a", "b", "c"} {
		l := NewNode(registers, id, "").NewLeader(t.Name(), 5*time.Second)
		ctx, stop := context.WithCancel(t.Context())
		running.Go(func() { l.Run(ctx) })
		leaders, stops = append(leaders, l), append(stops, stop)
	}
	defer running.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for left := 3; left > 0; left-- {
		leads := -1
		for end := time.Now().Add(time.Minute); leads < 0; <-tick.C {
			for i, l := range leaders {
				if l != nil && l.Leads() {
					leads = i
				}
			}
			if time.Now().After(end) {
				t.Fatalf("none of %d leads", left)
			}
		}
		stops[leads]()
		leaders[leads] = nil
	}
}

// Without the table there are no leases, which is not an error.
func testNoLeases(t *testing.T, session *cql.Session) {
	var log bytes.Buffer
	leases := NewLeases(Options{
		Node: "a", Log: slog.New(slog.NewTextHandler(&log, nil)), Without: "do it by hand",
		Open: func() (*cql.Session, bool, error) { return session, false, nil },
	})
	for _, get := range []func(context.Context, string, time.Duration) (*Lease, error){leases.Acquire, leases.Acquire, leases.Reacquire} {
		if lease, err := get(t.Context(), "x", time.Minute); lease != nil || err != nil {
			t.Errorf("without the table: %v, %v", lease, err)
		}
	}
	if n := strings.Count(log.String(), "varve_registers"); n != 1 || !strings.Contains(log.String(), "exclude each other; do it by hand") {
		t.Errorf("%d lines: %s", n, &log)
	}
}

// Of two servers one has a lease, and neither while the session must not be used. A process that
// was started again takes over the lease of the earlier one.
func testLeasesOfTwo(t *testing.T, session *cql.Session) {
	var away error
	open := func(node string) *Leases {
		return NewLeases(Options{
			Node: node, Log: slog.New(slog.DiscardHandler),
			Open: func() (*cql.Session, bool, error) { return session, true, away },
		})
	}
	a, b, name := open("a"), open("b"), t.Name()
	first, err := a.Acquire(t.Context(), name, time.Minute)
	if err != nil || first == nil {
		t.Fatal(first, err)
	}
	held := (*HeldError)(nil)
	if _, err := b.Acquire(t.Context(), name, time.Minute); !errors.As(err, &held) || held.By.Node != "a" {
		t.Errorf("the other server: %v", err)
	}
	if _, err := b.Reacquire(t.Context(), name, time.Minute); !errors.As(err, &held) {
		t.Errorf("the other server after a restart: %v", err)
	}
	again, err := open("a").Reacquire(t.Context(), name, time.Minute)
	if err != nil || again == nil || again.Token <= first.Token {
		t.Fatalf("the same server after a restart: %v, %v", again, err)
	}
	if err := again.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if second, err := b.Acquire(t.Context(), name, time.Minute); err != nil || second == nil {
		t.Errorf("after the release: %v, %v", second, err)
	}
	away = errors.New("another cluster answers")
	if _, err := a.Acquire(t.Context(), name, time.Minute); !errors.Is(err, away) {
		t.Errorf("while the session must not be used: %v", err)
	}
}

// A server that cannot use the table, although it was there when the server looked, does not go on
// without leases: another server may be creating it, and would not be excluded. It looks again.
func testLeasesWhileTableIsMissing(t *testing.T, session *cql.Session) {
	create := false
	leases := NewLeases(Options{
		Node: "a", Log: slog.New(slog.DiscardHandler),
		Open: func() (*cql.Session, bool, error) { return session, create, nil },
	})
	name := t.Name()
	if first, err := leases.Acquire(t.Context(), name, time.Minute); err != nil || first == nil {
		t.Fatal(first, err)
	}
	cqltest.Must(t, session, `DROP TABLE "`+session.KeyspaceName()+`".varve_registers`)
	if lease, err := leases.Acquire(t.Context(), name, time.Minute); lease != nil || !store.Passes(err) {
		t.Errorf("while the table is missing: %v, %v", lease, err)
	}
	create = true
	if again, err := leases.Acquire(t.Context(), name, time.Minute); err != nil || again == nil {
		t.Errorf("once it is there again: %v, %v", again, err)
	}
}

// The table is created only if create is set, and refused if it has another shape.
func testTable(t *testing.T, session *cql.Session) {
	fault := (*cql.TableError)(nil)
	if _, err := OpenRegisters(t.Context(), session, false); !errors.As(err, &fault) {
		t.Errorf("without the table: %v", err)
	}
	name := `"` + session.KeyspaceName() + `".varve_registers`
	cqltest.Must(t, session, "CREATE TABLE "+name+" (space text, name text, version int, PRIMARY KEY (space, name))")
	if _, err := OpenRegisters(t.Context(), session, true); !errors.As(err, &fault) {
		t.Errorf("with another table of that name: %v", err)
	}
	cqltest.Must(t, session, "DROP TABLE "+name)
}

// A server keeps its id, and has one even if it cannot be stored.
func TestServerID(t *testing.T) {
	dir := t.TempDir()
	first, err := ServerID(dir)
	if err != nil || first == "" {
		t.Fatal(first, err)
	}
	if again, err := ServerID(dir); again != first || err != nil {
		t.Errorf("%q and then %q, %v", first, again, err)
	}
	path := filepath.Join(dir, idFile)
	if err := os.WriteFile(path, nil, 0o644); err != nil { // a crash while it was written
		t.Fatal(err)
	}
	second, err := ServerID(dir)
	if err != nil || second == "" || second == first {
		t.Errorf("%q and then %q, %v", first, second, err)
	}
	third, err := ServerID(path) // a file is in the way
	if third == "" || err == nil {
		t.Errorf("%q, %v", third, err)
	}
	fourth, _ := ServerID(path)
	unreadable := t.TempDir()
	if err := os.Mkdir(filepath.Join(unreadable, idFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if id, err := ServerID(unreadable); id == "" || err == nil {
		t.Errorf("with a file that cannot be read: %q, %v", id, err)
	}
	ids := map[string]bool{}
	for _, id := range []string{second, third, fourth, ToolID(dir), ToolID(t.TempDir())} {
		if ids[id] {
			t.Errorf("%q is the id of two", id)
		}
		ids[id] = true
	}
	if !ids[ToolID(dir)] {
		t.Error("the id of a tool changes")
	}
}
