package cql

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiterLearns(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimiter(func() time.Time { return now })
	l.resize(64, 1000)
	step := func(c class) {
		t.Helper()
		if err := l.acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		l.release(1, c)
	}
	for range 5 {
		step(classTimeout) // of one bad moment
	}
	if got := l.load(); got.limit != 32 || got.halvings != 1 {
		t.Errorf("limit is %d after %d halvings, want 32 after 1", got.limit, got.halvings)
	}
	for range 10 {
		now = now.Add(2 * time.Second)
		step(classOverloaded)
	}
	if got := l.load().limit; got != floor {
		t.Errorf("limit is %d, want the floor", got)
	}
	for range 1000 {
		step(classOK) // alone: says nothing about more
	}
	if got := l.load().limit; got != floor {
		t.Errorf("limit is %d although it was never full", got)
	}
	fill := func() {
		n := l.load().limit
		for range n {
			if err := l.acquire(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		for range n {
			l.release(1, classOK)
		}
	}
	for range 500 {
		fill()
	}
	if got := l.load().limit; got != 64 {
		t.Errorf("limit is %d, want 64 again", got)
	}
	l.resize(128, 1000)
	if got := l.load().limit; got != 128 {
		t.Errorf("limit is %d after a second node came", got)
	}
	l.resize(2, 1000)
	now = now.Add(2 * time.Second)
	step(classTimeout)
	if got := l.load().limit; got != 2 {
		t.Errorf("limit is %d, the floor is not above the bound", got)
	}
}

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
		l.release(5000, classOK)
		synctest.Wait()
		if len(order) != 2 || order[0] != 0 && order[1] != 0 {
			t.Errorf("after the large one %v got in, want 0 and 1", order)
		}
		l.release(900, classOK)
		synctest.Wait()
		if len(order) != 3 {
			t.Errorf("%v got in, want all", order)
		}
		l.release(10, classOK)
		l.release(200, classOK)
		if got := l.load(); got.inFlight != 0 || got.bytes != 0 || got.waiting != 0 {
			t.Errorf("at the end %+v", got)
		}
	})
}
