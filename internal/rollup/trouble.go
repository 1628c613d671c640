package rollup

import (
	"context"
	"errors"
	"sync"
	"time"

	"varve/internal/store"
)

// A trouble is a failure that repeats. The log has one line when it begins, one per
// logEvery with the number of failures, and one when it is over: a task that fails at
// each retry would otherwise fill the log.
type trouble struct {
	mu     sync.Mutex
	count  int       // failures since the last success
	logged time.Time // when it was last logged
	since  time.Time // when the store was first found unavailable
}

// logEvery is the time between two log lines about a failure that persists.
const logEvery = time.Hour

// again counts a failure. It returns the number of failures so far, and whether to log
// it.
func (t *trouble) again(now time.Time) (count int, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	if t.count > 1 && now.Sub(t.logged) < logEvery {
		return t.count, false
	}
	t.logged = now
	return t.count, true
}

// patience is how long a store may be unavailable before that is logged.
const patience = 15 * time.Second

// await is again for a store that may be unavailable: it logs nothing before patience
// is over. A remote store is opened after the start, and logs itself why it is not open
// yet.
func (t *trouble) await(now time.Time, err error) (count int, tell bool) {
	if !errors.As(err, new(*store.UnavailableError)) {
		return t.again(now)
	}
	t.mu.Lock()
	if t.count == 0 {
		t.since = now
	}
	if now.Sub(t.since) < patience {
		t.count, t.logged = t.count+1, time.Time{}
		defer t.mu.Unlock()
		return t.count, false
	}
	t.mu.Unlock()
	return t.again(now)
}

// patiently ends the trouble of talking to the store if err is nil. Else it counts a failure, unless ctx
// has ended, and logs it if that is due.
func (s *Scheduler) patiently(ctx context.Context, t *trouble, err error, text string) {
	if err == nil {
		t.over()
		return
	}
	if ctx.Err() != nil {
		return
	}
	if n, tell := t.await(s.now(), err); tell {
		s.log.Warn(text, "error", err, "failures", n)
	}
}

// warn counts a failure of a task, and logs it if that is due.
func (s *Scheduler) warn(t *trouble, text string, of *task, why any) {
	if n, tell := t.again(s.now()); tell {
		s.log.Warn(text, "id", of.id, "name", of.name, "error", why, "failures", n)
	}
}

// over ends the trouble, and returns the number of failures.
func (t *trouble) over() (count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count, t.count = t.count, 0
	return count
}
