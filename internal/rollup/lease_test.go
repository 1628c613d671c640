package rollup

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/query"
	"varve/internal/store/reference"
)

// A board has the leases of several nodes.
type board struct {
	mu     sync.Mutex
	holder map[string]*boardLease // by name
	away   error                  // of all calls
	once   func() error           // of the next call
}

type boardLease struct {
	b    *board
	name string
	lose context.CancelCauseFunc
}

func (b *board) lease(_ context.Context, name string, _ time.Duration) (Lease, error) {
	b.mu.Lock()
	once := b.once
	b.once = nil
	b.mu.Unlock()
	if once != nil {
		return nil, once()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away != nil {
		return nil, b.away
	}
	if b.holder[name] != nil {
		return nil, fmt.Errorf("lease %s: %w", name, ErrHeld)
	}
	if b.holder == nil {
		b.holder = map[string]*boardLease{}
	}
	b.holder[name] = &boardLease{b: b, name: name}
	return b.holder[name], nil
}

func (l *boardLease) Check() error {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.holder[l.name] != l {
		return errors.New("the lease is lost")
	}
	return nil
}

func (l *boardLease) Keep(ctx context.Context, f func(context.Context) error) error {
	ctx, lose := context.WithCancelCause(ctx)
	l.b.mu.Lock()
	l.lose = lose
	l.b.mu.Unlock()
	err := f(ctx)
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.holder[l.name] == l {
		delete(l.b.holder, l.name)
	}
	return err
}

// take makes the holders of all leases lose them.
func (b *board) take() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, l := range b.holder {
		delete(b.holder, name)
		l.lose(errors.New("the lease is lost"))
	}
}

// twoNodes have one store: a runs the task "t", which sums src by minute each hour, and b's writes
// can be interrupted. Three minutes of the day before have a point each.
func twoNodes(t *testing.T, b *board) (one, two *harness, i *interrupted) {
	shared := reference.New(nil)
	i = &interrupted{Store: shared}
	node := func(name string) *harness {
		h := &harness{T: t, store: shared, node: name}
		if b != nil {
			h.lease = b.lease
		}
		if name == "b" {
			h.front = i
		}
		h.restart(func(c *Config, _ *query.Config) { c.BatchBuckets = 1 })
		return h
	}
	one = node("a")
	one.put("src", "a", 1, at(-24, 0, 30), at(-24, 1, 30), at(-24, 2, 30))
	one.start()
	time.Sleep(time.Second)
	one.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	two = node("b")
	two.start()
	time.Sleep(150 * time.Minute) // between two runs
	return one, two, i
}

// A late point arrives after a backfill on another node has read its bucket, and the task is due.
func TestBackfillOnAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		one, two, i := twoNodes(t, b)
		defer one.stop()
		defer two.stop()
		i.before = func() {
			one.send("src", "a", 5, at(-24, 0, 10))
			_, due := one.scheduled("t")
			time.Sleep(time.Until(due) + time.Minute)
		}
		if w := two.fillThree(); w.Code != 204 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		time.Sleep(time.Minute)
		one.wantPoints("dst", "{host=a,saved_from=src} 1999-12-31T00:00 6\n{host=a,saved_from=src} 1999-12-31T00:01 1\n{host=a,saved_from=src} 1999-12-31T00:02 1")
	})
}

// A task is changed and backfilled on another node at the time at which it is due, before the node
// that runs it has read the change. No run of the former query may replace results of the backfill,
// whatever is delayed.
func TestChangedOnAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, _ := twoNodes(t, &board{})
		defer one.stop()
		defer two.stop()
		one.send("src", "a", 5, at(-24, 0, 10))
		_, due := one.scheduled("t")
		time.Sleep(time.Until(due) - time.Millisecond)
		two.do(200, "PUT", "/api/v1/rollups/t", strings.Replace(taskJSON("t", hour, minute, ""), `"sum"`, `"count"`, 1))
		if w := two.fillThree(); w.Code != 204 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		counted := "{host=a,saved_from=src} 1999-12-31T00:00 2\n{host=a,saved_from=src} 1999-12-31T00:01 1\n{host=a,saved_from=src} 1999-12-31T00:02 1"
		one.wantPoints("dst", counted)
		one.send("src", "a", 7, at(-24, 0, 50))
		time.Sleep(3 * time.Hour)
		one.wantPoints("dst", strings.Replace(counted, "00:00 2", "00:00 3", 1))
		_, due = one.scheduled("t")
		time.Sleep(time.Until(due) - time.Millisecond)
		one.send("src", "a", 7, at(-24, 1, 50))
		two.do(204, "DELETE", "/api/v1/rollups/t", "")
		time.Sleep(2 * time.Hour)
		one.wantPoints("dst", strings.Replace(counted, "00:00 2", "00:00 3", 1))
	})
}

// A backfill whose lease is lost before it stores a result stores none.
func TestBackfillLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		one, two, i := twoNodes(t, b)
		defer one.stop()
		defer two.stop()
		lost := false
		i.view = func() {
			if !lost {
				lost = true
				b.take()
			}
		}
		w := httptest.NewRecorder()
		two.mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/rollups/backfill/t?startTime=1999-12-31-00-00-00-000&endTime=1999-12-31-00-02-59-999", nil))
		if !lost || w.Code == 204 {
			t.Errorf("%v, %d %s", lost, w.Code, w.Body)
		}
		one.wantPoints("dst", "")
	})
}

// A run whose lease is lost is repeated.
func TestRunLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		one, two, i := twoNodes(t, b)
		defer func() { one.stop() }()
		defer two.stop()
		one.stop()
		var lose atomic.Bool
		i.view = func() {
			if lose.Load() {
				b.take()
			}
		}
		one.front = i
		one.restart(nil)
		one.start()
		one.send("src", "a", 5, at(-24, 0, 10))
		_, due := one.scheduled("t")
		lose.Store(true)
		time.Sleep(time.Until(due) + 30*time.Second)
		lose.Store(false)
		one.wantPoints("dst", "")
		time.Sleep(2 * time.Minute)
		one.wantPoints("dst", "{host=a,saved_from=src} 1999-12-31T00:00 6")
	})
}

// While leases are unavailable, backfills fail, and runs continue once no other node can have a
// lease.
func TestLeasesUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		one, two, _ := twoNodes(t, b)
		defer one.stop()
		defer two.stop()
		one.send("src", "a", 5, at(-24, 0, 10))
		_, due := one.scheduled("t")
		b.mu.Lock()
		b.away = errors.New("no quorum")
		b.mu.Unlock()
		if w := two.fillThree(); w.Code == 204 {
			t.Error("a backfill ran without a lease")
		}
		time.Sleep(time.Until(due) + leaseAway - time.Second)
		one.wantPoints("dst", "")
		time.Sleep(time.Minute)
		one.wantPoints("dst", "{host=a,saved_from=src} 1999-12-31T00:00 6")
	})
}

// A node that was suspended while it asked for a lease knows nothing about the leases of others.
func TestSuspendedNodeWaitsForItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		one, two, _ := twoNodes(t, b)
		defer one.stop()
		defer two.stop()
		other, err := b.lease(t.Context(), "roll-up t", leaseLife)
		if err != nil {
			t.Fatal(err)
		}
		var asked atomic.Bool
		b.once = func() error {
			asked.Store(true)
			time.Sleep(2 * leaseAway)
			return context.DeadlineExceeded
		}
		one.send("src", "a", 5, at(-24, 0, 10))
		_, due := one.scheduled("t")
		time.Sleep(time.Until(due) + 4*leaseAway)
		if !asked.Load() {
			t.Fatal("the run has not asked for its lease")
		}
		one.wantPoints("dst", "")
		other.Keep(t.Context(), func(context.Context) error { return nil })
		time.Sleep(time.Minute)
		one.wantPoints("dst", "{host=a,saved_from=src} 1999-12-31T00:00 6")
	})
}

// A backfill of a task that another node runs pauses, so that the run gets its turn.
func TestRunGetsATurnBesideABackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		one, two, i := twoNodes(t, b)
		defer one.stop()
		defer two.stop()
		i.each = func() { time.Sleep(leaseTurn / 10) }
		var all []int64
		for m := range 120 {
			all = append(all, at(-20, m, 30))
		}
		one.put("src", "b", 1, all...)
		_, due := one.scheduled("t")
		time.Sleep(time.Until(due) - 30*time.Second)
		one.send("src", "a", 5, at(-24, 0, 10))
		ended := time.Time{}
		var fill sync.WaitGroup
		fill.Go(func() {
			two.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=1999-12-31-04-00-00-000&endTime=1999-12-31-05-59-59-999", "")
			ended = time.Now()
		})
		time.Sleep(time.Until(due) + 2*leaseTurn)
		if got := one.points("dst"); !strings.Contains(got, "{host=a,saved_from=src} 1999-12-31T00:00 6") {
			t.Errorf("the run has not had its turn:\n%s", got)
		}
		fill.Wait()
		if d := ended.Sub(due); d < 3*leaseTurn {
			t.Errorf("the backfill ended after %v: it did not compete", d)
		}
	})
}
