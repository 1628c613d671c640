package read

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
)

// TestFlights: who comes while a read is under way gets what one finds that began
// after he came, and all who wait get the same one.
func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flights
		var reads, under atomic.Int64
		began := time.Now()
		var mu sync.Mutex
		beganAt := map[*keyList]time.Time{}
		load := func([]*harvest) (*keyList, error) {
			if reads.Add(1); under.Add(1) != 1 {
				t.Error("two at once")
			}
			defer under.Add(-1)
			list := new(keyList)
			mu.Lock()
			beganAt[list] = time.Now()
			mu.Unlock()
			time.Sleep(time.Second)
			return list, nil
		}
		var tasks sync.WaitGroup
		for i := range 30 {
			tasks.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				asked := time.Now()
				list, _, err := f.take(t.Context(), flightKey{Partition: rowkey.Partition{Metric: "m", TimeMS: 0}}, new(harvest), load)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || beganAt[list].Before(asked) {
					t.Errorf("asked at %v, read from %v, %v", asked.Sub(began), beganAt[list].Sub(began), err)
				}
			})
		}
		tasks.Wait()
		if n := reads.Load(); n < 3 || n > 5 {
			t.Errorf("%d reads for 30 who asked within 2.9 s", n)
		}
		if len(f.flying)+len(f.next) > 0 {
			t.Errorf("left: %v %v", f.flying, f.next)
		}
	})
}

// TestFlightsThatFail: who waits does not suffer from the end of another's
// context, and one who leaves is not waited for.
func TestFlightsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flights
		k := flightKey{Partition: rowkey.Partition{Metric: "m", TimeMS: 0}}
		wait := func(ctx context.Context) func([]*harvest) (*keyList, error) {
			return func([]*harvest) (*keyList, error) {
				select {
				case <-time.After(time.Second):
					return new(keyList), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}
		ctxs, errs := make([]context.Context, 4), make([]error, 4)
		var tasks sync.WaitGroup
		for i, life := range []time.Duration{1300 * time.Millisecond, 1500 * time.Millisecond, 200 * time.Millisecond, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), life)
			defer cancel()
			ctxs[i] = ctx
			tasks.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				_, _, errs[i] = f.take(ctx, k, new(harvest), wait(ctx))
			})
		}
		tasks.Wait()
		// The first reads; of the others, which wait for it, one leaves, and whoever
		// reads next, the last one is given a list.
		if errs[0] != nil || !errors.Is(errs[2], context.DeadlineExceeded) || errs[3] != nil {
			t.Errorf("%v", errs)
		}
		if f.take(ctxs[3], k, new(harvest), wait(ctxs[3])); len(f.flying)+len(f.next) > 0 {
			t.Errorf("left: %v %v", f.flying, f.next)
		}
		// All who wait for the one under way leave.
		tasks.Go(func() { f.take(t.Context(), k, new(harvest), wait(t.Context())) })
		synctest.Wait()
		left, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		if _, _, err := f.take(left, k, new(harvest), wait(left)); !errors.Is(err, context.DeadlineExceeded) || len(f.next) > 0 {
			t.Errorf("%v, %d remembered", err, len(f.next))
		}
		tasks.Wait()
	})
}
