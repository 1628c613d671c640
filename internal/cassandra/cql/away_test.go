package cql_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
)

// until waits for something that comes by itself.
func until(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: not %s", limit, what)
		}
	}
}

// TestOtherPrograms: if hosts names something other than Cassandra nodes, the reason says what is wrong.
func TestOtherPrograms(t *testing.T) {
	listen := func(answer string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { c.Close() })
				fmt.Fprint(c, answer)
			}
		}()
		return l.Addr().String()
	}
	web := listen("HTTP/1.1 400 Bad Request\r\n\r\n")
	for _, c := range []struct {
		host string
		tls  bool
		want string
	}{
		{web, false, "a program other than Cassandra"},
		{web, true, "does not speak TLS"},
		{listen(""), false, "nothing answers"},
		{"node.invalid", false, "hosts node.invalid"},
	} {
		config := cqltest.Config(c.host)
		config.TLS.Enabled = c.tls
		config.ConnectTimeout = time.Second
		s, err := cql.Open(config, cql.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		until(t, 30*time.Second, "told that "+c.want, func() bool { return strings.Contains(s.State().Reason, c.want) })
	}
}

// TestAbsentAtStart: a session opens without a cluster, says so, fails at once
// meanwhile, and works when the cluster is there.
func TestAbsentAtStart(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	var n network
	n.Cut()
	start := time.Now()
	s, err := cql.Open(config, cql.Options{Dial: n.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if took := time.Since(start); took > config.ConnectTimeout {
		t.Errorf("opening took %v", took)
	}
	until(t, time.Minute, "refused", func() bool { return strings.Contains(s.State().Reason, "connection refused") })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err = s.Wait(ctx)
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("waiting: %v", err)
	}
	err = s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v"))
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "no node answers") {
		t.Errorf("writing: %v", err)
	}
	if state := s.State(); state.Connected || !strings.Contains(state.Reason, "connection refused") || state.Since.IsZero() {
		t.Errorf("state is %+v", state)
	}
	n.Mend()
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if state := s.State(); !state.Connected || state.Reason != "" || state.Version == "" {
		t.Errorf("state is %+v", state)
	}
}

// TestClosedWhileAbsent: closing does not wait for a cluster.
func TestClosedWhileAbsent(t *testing.T) {
	config := cqltest.Config(cqltest.ClosedPort(t))
	s, err := cql.Open(config, cql.Options{Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	s.Close()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("closing took %v", took)
	}
	if err := s.Wait(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("waiting for a closed session: %v", err)
	}
}

// TestClosedWhileReconnecting: a session that is closed while the driver connects again ends, even
// if the node answers then.
func TestClosedWhileReconnecting(t *testing.T) {
	others := goleak.IgnoreCurrent()
	config := cqltest.Config(originals.Cassandra(t))
	var n network
	var hold atomic.Bool
	thaw := make(chan struct{})
	s, err := cql.Open(config, cql.Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := n.Dial(context.WithoutCancel(ctx), network, address)
		if err == nil && hold.Load() {
			<-thaw
		}
		return c, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold.Store(true)
	n.Cut()
	n.Mend()
	until(t, 30*time.Second, "reconnecting", func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "attemptReconnectToAnyOfHosts")
	})
	s.Close()
	close(thaw)
	noneLeft(t, others)
}

// TestLostWhileConnecting: wherever the connection to the only node breaks while the driver sets
// up its session, nothing of that session stays.
func TestLostWhileConnecting(t *testing.T) {
	const frames = 8 // more than a session begins with
	config := cqltest.Config(originals.Cassandra(t))
	for sent := range frames {
		t.Run(fmt.Sprintf("after %d frames", sent), func(t *testing.T) {
			others := goleak.IgnoreCurrent()
			n := brittle{}
			n.left.Store(int64(sent))
			s, err := cql.Open(config, cql.Options{Dial: n.Dial})
			if err != nil {
				t.Fatal(err)
			}
			until(t, 30*time.Second, "lost", func() bool { return n.left.Load() < 0 })
			s.Close()
			noneLeft(t, others)
		})
	}
}

// noneLeft fails the test unless all goroutines end soon, except those of the option.
func noneLeft(t *testing.T, others goleak.Option) {
	t.Helper()
	var left error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if left = goleak.Find(others); left == nil {
			return
		}
	}
	t.Error(left)
}

// TestAwayAndBack: the node goes and comes back; the same session tells both and
// goes on.
func TestAwayAndBack(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	var n network
	registry := prometheus.NewRegistry()
	s := cqltest.Keyspace(t, config, cql.Options{Dial: n.Dial, Registerer: registry})
	cqltest.Must(t, s, table)
	write := func() error { return s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v")) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	n.Cut()
	until(t, time.Minute, "away", func() bool { return !s.State().Connected })
	start := time.Now()
	err := write()
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "no node answers") {
		t.Errorf("writing to no node: %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("an error after %v", took)
	}
	if metric(t, registry, "varve_cql_connected", nil) != 0 {
		t.Error("the metric says connected")
	}
	n.Mend()
	until(t, time.Minute, "back", func() bool { return s.State().Connected && write() == nil })
}

// TestOutage: while no node answers a read fails after outage_grace, and later
// ones at once, with the time and the cause; an outage that is shorter is not
// seen. Whether nodes are gone or silent makes no difference. A write is tried
// all the same.
func TestOutage(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	config.StallAfter = 500 * time.Millisecond
	config.OutageGrace = 4 * time.Second
	config.ConnectTimeout = 3 * time.Second
	var n network
	s := cqltest.Keyspace(t, config, cql.Options{Dial: n.Dial})
	cqltest.Must(t, s, table)
	ask := func() (time.Duration, error) {
		start := time.Now()
		_, err := s.One(t.Context(), selectAll, []any{[]byte("k")}, nil, nil, nil)
		return time.Since(start), err
	}
	for _, c := range []struct {
		name       string
		away, back func()
		reason     string
		detected   time.Duration
	}{
		{"gone", n.Cut, n.Mend, "no node is connected", 0},
		{"silent", n.Freeze, n.Thaw, "do not answer", 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ask(); err != nil {
				t.Fatal(err)
			}
			c.away()
			time.AfterFunc(time.Second, c.back)
			if took, err := ask(); err != nil {
				t.Errorf("an outage of 1s: %v after %v", err, took)
			} else {
				t.Logf("an outage of 1s: answered after %v", took)
			}
			until(t, time.Minute, "connected", func() bool { return s.State().Connected })
			c.away()
			away := time.Now()
			took, err := ask()
			var unavailable *store.UnavailableError
			if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "no node has answered since 2") {
				t.Errorf("no node: %v", err)
			}
			if took < config.OutageGrace/2 || took > config.OutageGrace+c.detected+10*time.Second {
				t.Errorf("no node: told after %v", took)
			}
			t.Logf("after %v: %v", took, err)
			if since := s.State().Since; since.Before(away.Add(-time.Second)) || since.After(away.Add(c.detected+config.OutageGrace/2)) {
				t.Errorf("no node answers since %v, told was %v", away, since)
			}
			for range 3 {
				took, err := ask()
				if !errors.As(err, &unavailable) || took > config.OutageGrace/2 {
					t.Errorf("later: told after %v: %v", took, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), config.OutageGrace)
			defer cancel()
			if c.name == "silent" {
				if err := s.Exec(ctx, insert, 1, []byte("k"), []byte("c"), []byte("v")); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a write does not wait for the nodes: %v", err)
				}
			}
			c.back()
			back := time.Now()
			until(t, time.Minute, "answered", func() bool { _, err := ask(); return err == nil })
			t.Logf("answered %v after the end", time.Since(back))
		})
	}
}

// TestHangs: a node that says nothing costs a statement its timeout, not more,
// and is told as what it is.
func TestHangs(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	config.Attempts = 2
	config.StallAfter = 300 * time.Millisecond
	var n network
	s := cqltest.Keyspace(t, config, cql.Options{Dial: n.Dial})
	cqltest.Must(t, s, table)
	config.Keyspace = s.KeyspaceName()
	config.ReadTimeout, config.WriteTimeout, config.ConnectTimeout = 500*time.Millisecond, 500*time.Millisecond, 2*time.Second
	quick := cqltest.Open(t, config, cql.Options{Dial: n.Dial})
	write := func() error { return quick.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v")) }
	until(t, time.Minute, "written", func() bool { return write() == nil }) // prepared
	n.Freeze()
	start := time.Now()
	err := write()
	took := time.Since(start)
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "failed 2 times") {
		t.Errorf("writing to a node that hangs: %v", err)
	}
	t.Log(err)
	if took < 900*time.Millisecond || took > 8*time.Second {
		t.Errorf("an error after %v, want 2 times 500ms and a pause", took)
	}
	until(t, time.Minute, "away", func() bool { return !quick.State().Connected })
	t.Log(quick.State().Reason)
	n.Thaw()
	until(t, time.Minute, "back", func() bool { return quick.State().Connected && write() == nil })
}

// TestSlow: with slow answers the limit of statements in flight holds, what does
// not find room waits its turn, and a caller who does not want to wait can go.
func TestSlow(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	config.WritesInFlight = 4
	config.Connections = 1
	var n network
	registry := prometheus.NewRegistry()
	s := cqltest.Keyspace(t, config, cql.Options{Dial: n.Dial, Registerer: registry})
	cqltest.Must(t, s, table)
	if err := s.Exec(t.Context(), insert, 1, []byte("k"), []byte("c"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	n.Delay(50 * time.Millisecond)
	var wg sync.WaitGroup
	var most atomic.Int64
	for i := range 24 {
		wg.Go(func() {
			if err := s.Exec(t.Context(), insert, 1, []byte("k"), fmt.Append(nil, i), []byte("v")); err != nil {
				t.Error(err)
			}
			if now := int64(metric(t, registry, "varve_cql_in_flight", map[string]string{"kind": "write"})); now > most.Load() {
				most.Store(now)
			}
		})
	}
	until(t, time.Minute, "full", func() bool {
		return metric(t, registry, "varve_cql_waiting", map[string]string{"kind": "write"}) > 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Exec(ctx, insert, 1, []byte("k"), []byte("x"), []byte("v")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller in a hurry: %v", err)
	}
	wg.Wait()
	if most.Load() > 4 {
		t.Errorf("%d statements in flight, at most 4 are allowed", most.Load())
	}
	if n := metric(t, registry, "varve_cql_waits_total", map[string]string{"kind": "write"}); n < 19 {
		t.Errorf("%v statements waited", n)
	}
}
