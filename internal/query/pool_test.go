package query

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"varve/internal/store"
	"varve/internal/units"
)

// All queries have one budget: a query that finds it used up waits, goes on
// when another one gives back, and is refused as overload after max_wait.
func TestQueriesShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.TotalMemory, config.MaxWait = 3*grantBytes, 10*time.Second
		f := newFixture(t, config)
		hold := func() error {
			s, err := f.Begin(t.Context(), Request{})
			if err != nil {
				return err
			}
			l := s.Lease()
			err = l.Take(grantBytes)
			s.Close(err)
			return err
		}
		held := func() float64 {
			var m dto.Metric
			if err := f.metrics.memory.Write(&m); err != nil {
				t.Fatal(err)
			}
			return m.Gauge.GetValue()
		}

		if err := f.Reserve(t.Context(), 3*grantBytes); err != nil {
			t.Fatal(err)
		}
		var busy *BusyError
		var limit *store.LimitError
		began := time.Now()
		err := hold()
		if !errors.As(err, &busy) || !errors.As(err, &limit) || limit.Limit != "query.total_memory" || limit.Need <= limit.Max || outcome(err) != "busy" {
			t.Errorf("beside an answer that is not sent: %v", err)
		}
		if waited := time.Since(began); waited != config.MaxWait {
			t.Errorf("waited %s", waited)
		}
		if counted(t, f.metrics.memoryRefused) != 1 || held() != 3*grantBytes {
			t.Errorf("%v bytes are held", held())
		}

		time.AfterFunc(5*time.Second, func() { f.Return(3 * grantBytes) })
		began = time.Now()
		if err := hold(); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if held() != 0 {
			t.Errorf("%v bytes are held at rest", held())
		}

		if err := f.Reserve(t.Context(), 3*grantBytes); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Reserve(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that is cancelled: %v", err)
		}
		f.Return(3 * grantBytes)
	})
}

// Memory that a query no longer uses goes back to the pool before the query ends.
func TestSpareMemoryIsGivenBackEarly(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	b := &budget{max: 1 << 40, ctx: t.Context(), pool: f.pool}
	f.pool.max = 1 << 40
	for range 100 {
		if err := b.take(grantBytes); err != nil {
			t.Fatal(err)
		}
	}
	b.release(90 * grantBytes)
	if n := f.pool.inUse(); n > 10*grantBytes+keptGrant {
		t.Errorf("%d bytes are held", n)
	}
	b.release(10 * grantBytes)
	b.close()
	if n := f.pool.inUse(); n != 0 {
		t.Errorf("%d bytes are held at the end", n)
	}
}

// A query that needs more than all queries may have is told of that setting.
func TestLimitOfMemoryIsNamed(t *testing.T) {
	for _, tc := range []struct {
		own, all int64
		want     string
	}{
		{1 << 10, 1 << 20, "query.max_memory"}, {1 << 20, 1 << 10, "query.total_memory"},
	} {
		config := DefaultConfig()
		config.MaxMemory, config.TotalMemory = units.Bytes(tc.own), units.Bytes(tc.all)
		run, err := newFixture(t, config).Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		var limit *store.LimitError
		if err := run.budget.take(1 << 12); !errors.As(err, &limit) || limit.Limit != tc.want || limit.Max != 1<<10 {
			t.Errorf("%d of %d: %v, want %s", tc.own, tc.all, err, tc.want)
		}
		run.Close(nil)
	}
}
