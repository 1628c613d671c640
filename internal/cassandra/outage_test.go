package cassandra

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// TestRequestsInAnOutage: while Cassandra is away samples are taken, and what
// cannot be done fails in about outage_grace: nobody waits for the end of the
// outage.
func TestRequestsInAnOutage(t *testing.T) {
	f := newFailingStore(t)
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
			if took := time.Since(began); took > 8*time.Second || !first && took > time.Second {
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
