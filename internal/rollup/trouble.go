package rollup

import (
	"errors"
	"sync"
	"time"

	"varve/internal/store"
)

// A trouble is a failure that repeats. The log tells of it when it begins, then once
// in tellEvery with the number of failures, and when it is over. A task that fails
// at each retry would otherwise fill the log.
type trouble struct {
	mu    sync.Mutex
	count int       // failures since the last success
	told  time.Time // when the log last said so
	since time.Time // when a store that is away was first missed
}

// tellEvery is the time between two log lines about a failure that lasts.
const tellEvery = time.Hour

// again counts a failure, and reports how many there were and whether to tell.
func (t *trouble) again(now time.Time) (count int, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	if t.count > 1 && now.Sub(t.told) < tellEvery {
		return t.count, false
	}
	t.told = now
	return t.count, true
}

// patience is how long a store may be unavailable before that is logged.
const patience = 15 * time.Second

// await is again for a store that is unavailable: it logs nothing before patience is over. A
// store over the network is opened after the start, and logs itself what it lacks.
func (t *trouble) await(now time.Time, err error) (count int, tell bool) {
	var away *store.UnavailableError
	if !errors.As(err, &away) {
		return t.again(now)
	}
	t.mu.Lock()
	if t.count == 0 {
		t.since = now
	}
	if now.Sub(t.since) < patience {
		t.count, t.told = t.count+1, time.Time{}
		defer t.mu.Unlock()
		return t.count, false
	}
	t.mu.Unlock()
	return t.again(now)
}

// over ends the trouble, and reports how many failures there were.
func (t *trouble) over() (count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count, t.count = t.count, 0
	return count
}
