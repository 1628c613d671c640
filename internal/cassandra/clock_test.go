package cassandra

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/store"
)

// nodesAhead tells the clocks of nodes.
func nodesAhead(ahead ...time.Duration) func(context.Context) ([]cql.Clock, error) {
	return func(context.Context) (clocks []cql.Clock, err error) {
		for _, a := range ahead {
			clocks = append(clocks, cql.Clock{Up: true, Ahead: a})
		}
		return clocks, nil
	}
}

// TestNothingIsChangedUntilTheClockIsSet: while the clock differs from those of the nodes after a
// start, what seems to have expired is not written as deletions, and deletes and key-values are
// refused. All of it works once the clock is set.
func TestNothingIsChangedUntilTheClockIsSet(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	beside := ready(t, openStore(t, c, Options{Node: "beside"}))
	put(t, beside, "m", "x", map[int64]int64{expiredAt: 1, expiredAt + 1: 1})
	flushed(t, beside)
	var ahead atomic.Int64 // of the nodes
	ahead.Store(-int64(365 * 24 * time.Hour))
	asked := make(chan struct{}, 1)
	s := ready(t, openStore(t, c, Options{Node: "a", clocks: func(ctx context.Context) ([]cql.Clock, error) {
		defer func() {
			select {
			case asked <- struct{}{}:
			default:
			}
		}()
		return nodesAhead(time.Duration(ahead.Load()))(ctx)
	}}))
	putGone(t, s, "x", map[int64]int64{expiredAt + 1: 2})
	flush := make(chan error, 1)
	go func() { flush <- s.Flush(t.Context()) }()
	<-asked
	var away *store.UnavailableError
	if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); !errors.As(err, &away) || !strings.Contains(err.Error(), "8760h0m0s ahead of") {
		t.Errorf("delete: %v", err)
	}
	if err := s.Set(t.Context(), "service", "key", "name", "value"); !errors.As(err, &away) {
		t.Errorf("set: %v", err)
	}
	if err := s.Unset(t.Context(), "service", "key", "name"); !errors.As(err, &away) {
		t.Errorf("unset: %v", err)
	}
	if _, err := s.CancelDeletion(t.Context(), "job"); !errors.As(err, &away) {
		t.Errorf("cancel a delete: %v", err)
	}
	if h := s.spool.Health(); h.Samples != 1 {
		t.Errorf("%d samples wait", h.Samples)
	}
	same(t, "while the clock is not set", answer(t, beside, "m", all()), "x: 1501672887988=1 1501672887989=1")

	ahead.Store(0)
	if err := <-flush; err != nil {
		t.Fatal(err)
	}
	same(t, "when the clock is set", answer(t, beside, "m", all()), "x: 1501672887988=1")
	ahead.Store(-int64(time.Hour)) // is not looked at any more
	if err := s.Set(t.Context(), "service", "key", "name", "value"); err != nil {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Error(err)
	}
	if _, err := s.CancelDeletion(t.Context(), "job"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("cancel a delete when the clock is set: %v", err)
	}
	same(t, "after the delete", answer(t, beside, "m", all()))
}

// TestStartClock: the clock of most nodes counts, and only those that answer. After ten minutes
// the store goes on whatever they say.
func TestStartClock(t *testing.T) {
	const hour = time.Hour
	down := func(context.Context) ([]cql.Clock, error) {
		return []cql.Clock{{Up: false}, {Up: true, Err: errors.New("no answer")}}, nil
	}
	for _, x := range []struct {
		name   string
		clocks func(context.Context) ([]cql.Clock, error)
		want   string // in the error
	}{
		{"equal", nodesAhead(0), ""},
		{"a little off", nodesAhead(cql.ClockOff, -cql.ClockOff), ""},
		{"one node of three is off", nodesAhead(hour, time.Second, 0), ""},
		{"two nodes of three are ahead", nodesAhead(hour, hour, 0), "1h0m0s behind"},
		{"all nodes are behind", nodesAhead(-hour, -hour), "1h0m0s ahead of"},
		{"no node answers", down, "no answer"},
	} {
		t.Run(x.name, func(t *testing.T) {
			agreed := 0
			c := &startClock{clocks: x.clocks, log: slog.New(slog.DiscardHandler), opened: time.Now(), agreed: func() { agreed++ }}
			err := c.check(t.Context())
			if x.want == "" && (err != nil || !c.trusted() || agreed != 1) {
				t.Errorf("%v, trusted %v, agreed %d times", err, c.trusted(), agreed)
			}
			if x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want) || c.trusted() || agreed != 0) {
				t.Errorf("%v, trusted %v, agreed %d times, want %q", err, c.trusted(), agreed, x.want)
			}
			c.opened, c.looked = c.opened.Add(-clockHold), time.Time{}
			for range 2 {
				if err := c.check(t.Context()); err != nil || !c.trusted() || agreed != 1 {
					t.Errorf("ten minutes later: %v, trusted %v, agreed %d times", err, c.trusted(), agreed)
				}
			}
		})
	}
}
