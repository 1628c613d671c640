package cassandra

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/model"
	"varve/internal/store"
)

// TestRequestsInAnOutage: while Cassandra is unavailable, samples are accepted, and requests
// that need it fail after about outage_grace: none waits for the end of the outage.
func TestRequestsInAnOutage(t *testing.T) {
	const grace = 5 * time.Second // longer than a busy machine takes for what fails at once
	f := newFailingStore(t, func(c *settings) { c.OutageGrace = grace })
	put(t, f.store, "m", "a", story(0))
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	f.node.Cut()
	for i, first := range []bool{true, false} {
		put(t, f.store, "m", "b", story(1+i))
		for what, do := range map[string]func(context.Context) error{
			"delete": func(ctx context.Context) error {
				return f.store.Delete(ctx, store.Deletion{Metric: "m", Range: model.AllTime})
			},
			"set metadata":   func(ctx context.Context) error { return f.store.Set(ctx, "service", "key", "k", "v") },
			"unset metadata": func(ctx context.Context) error { return f.store.Unset(ctx, "service", "key", "k") },
			"get metadata": func(ctx context.Context) error {
				_, err := f.store.Get(ctx, "service", "key", "k")
				return err
			},
			"query": func(ctx context.Context) error {
				_, err := ask(ctx, f.store, "m", all())
				return err
			},
		} {
			began := time.Now()
			err := do(t.Context())
			var unavailable *store.UnavailableError
			if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "since 20") {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(began); took > 6*grace || !first && took > grace-time.Second {
				t.Errorf("%s: an error after %v", what, took)
			}
		}
	}
	f.node.Mend()
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	if got := f.hosts(f.store, "m"); got != "a 5, b 10" {
		t.Errorf("after the outage: %s", got)
	}
	if err := f.store.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Error(err)
	}
}

// TestDrainAfterAnOutage: once Cassandra answers again, it counts as accepting samples, although the
// attempt to write those of the outage goes on.
func TestDrainAfterAnOutage(t *testing.T) {
	f := newFailingStore(t)
	f.node.Cut()
	put(t, f.store, "m", "a", story(0))
	until(t, "an outage", func() bool { return errors.Is(f.store.spool.Health().SinkError, cql.ErrAway) })
	if f.store.Degraded() == nil {
		t.Error("during the outage: not degraded")
	}
	f.node.Mend()
	f.node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		for _, b := range r.Statements {
			if strings.Contains(b.Text, ".data_points") {
				return cqltest.Late(time.Second)
			}
		}
		return nil
	})
	until(t, "a connection", func() bool { return f.store.written.session.State().Connected })
	if h, err := f.store.spool.Health(), f.store.Degraded(); h.Samples == 0 || err != nil {
		t.Errorf("during the drain: %d samples wait, degraded: %v", h.Samples, err)
	}
	if err := f.flush(); err != nil {
		t.Error(err)
	}
}

// TestPartialInAnOutage: a view that may be partial answers from the spool, and says what is
// missing; any other view fails.
func TestPartialInAnOutage(t *testing.T) {
	f := newFailingStore(t)
	put(t, f.store, "m", "a", story(0))
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	f.node.Cut()
	put(t, f.store, "m", "a", story(1))
	put(t, f.store, "n", "b", story(1))
	v, err := f.store.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var unavailable *store.UnavailableError
	if _, err := askView(t.Context(), v, "m", all()); !errors.As(err, &unavailable) {
		t.Errorf("without leave: %v", err)
	}
	part := v.(store.PartialView)
	if err := part.Missing(); err != nil {
		t.Error(err)
	}
	part.AllowPartial()
	for metric, host := range map[string]string{"m": "a", "n": "b"} {
		lines, err := askView(t.Context(), v, metric, all())
		if err != nil || len(lines) != 1 || !strings.HasPrefix(lines[0], host+": ") || len(strings.Fields(lines[0])) != 1+samplesOfAStory {
			t.Errorf("%s: %q, %v", metric, lines, err)
		}
	}
	names, _, err := v.Names(t.Context(), store.NamesQuery{Kind: store.MetricNames})
	if err != nil || len(names) < 2 {
		t.Errorf("names %q, %v", names, err)
	}
	if err := part.Missing(); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "since 20") {
		t.Errorf("missing: %v", err)
	}
}

// TestPartialBeforeOpen: before the keyspace was ever reached, a view that may leave it
// out answers from the spool, also where limits count by row.
func TestPartialBeforeOpen(t *testing.T) {
	c := clustersConfig(t)
	c.Hosts, c.LimitPerRow = []string{cqltest.ClosedPort(t)}, true
	s := openStore(t, c, Options{})
	put(t, s, "m", "a", story(0))
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	v.(store.PartialView).AllowPartial()
	lines, err := askView(t.Context(), v, "m", store.ReadOptions{Range: model.AllTime, Limit: 2})
	if err != nil || len(lines) != 1 || len(strings.Fields(lines[0])) != 1+2 {
		t.Errorf("%q, %v", lines, err)
	}
}

// TestFlushWithoutRight: a flush ends with the cause if Cassandra refuses the samples for lack of a
// right. The samples wait, and are written once the right is back. During an outage, a flush waits.
func TestFlushWithoutRight(t *testing.T) {
	f := newFailingStore(t, func(c *settings) { c.OutageGrace = 100 * time.Millisecond })
	put(t, f.store, "m", "a", story(0))
	refuse := func(with *cqltest.Trouble) {
		f.node.Fail(func(r cqltest.Request) *cqltest.Trouble {
			for _, b := range r.Statements {
				if strings.Contains(b.Text, "INSERT INTO data_points") || strings.Contains(b.Text, ".data_points") {
					return with
				}
			}
			return nil
		})
	}
	refuse(cqltest.Unauthorized)
	err := f.flush()
	if !errors.As(err, new(*store.UnavailableError)) || !errors.Is(err, store.ErrLacks) || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without the right: %v", err)
	}
	if !strings.Contains(err.Error(), "data_points") || !strings.Contains(err.Error(), "grant the user the right") {
		t.Errorf("the error does not name table and remedy: %v", err)
	}
	refuse(cqltest.Unavailable)
	until(t, "another cause", func() bool { return !errors.Is(f.store.Degraded(), store.ErrLacks) })
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := f.store.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("during an outage: %v", err)
	}
	f.node.Mend()
	if err := f.flush(); err != nil {
		t.Error(err)
	}
}
