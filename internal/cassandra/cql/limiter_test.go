package cql

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiterBytesAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(time.Now)
		l.resize(100, 1000)
		must := func(n int) {
			if err := l.acquire(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		must(5000) // alone, whatever its size
		var mu sync.Mutex
		var order []int
		for i, n := range []int{900, 10, 200} {
			go func() {
				must(n)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting too long: %v", err)
		}
		l.release(5000)
		synctest.Wait()
		if len(order) != 2 || order[0] != 0 && order[1] != 0 {
			t.Errorf("after the large one %v got in, want 0 and 1", order)
		}
		l.release(900)
		synctest.Wait()
		if len(order) != 3 {
			t.Errorf("%v got in, want all", order)
		}
		l.release(10)
		l.release(200)
		if got := l.load(); got.inFlight != 0 || got.bytes != 0 || got.waiting != 0 {
			t.Errorf("at the end %+v", got)
		}
	})
}
