package rollup

import (
	"sync"
	"time"
)

// A trouble is a failure that repeats. The log tells of it when it begins, then once
// in tellEvery with the number of failures, and when it is over. A task that fails
// at each retry would otherwise fill the log.
type trouble struct {
	mu    sync.Mutex
	count int       // failures since the last success
	told  time.Time // when the log last said so
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

// over ends the trouble, and reports how many failures there were.
func (t *trouble) over() (count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count, t.count = t.count, 0
	return count
}
