package ingest

import (
	"sync"
	"time"
)

// A bucket of tokens: perSecond flow in, at most burst are held.
type bucket struct {
	perSecond, burst float64

	mu struct {
		sync.Mutex
		tokens float64
		at     time.Time
	}
}

func newBucket(perSecond, burst int, now time.Time) *bucket {
	b := &bucket{perSecond: float64(perSecond), burst: float64(burst)}
	b.mu.tokens, b.mu.at = b.burst, now
	return b
}

// take removes one token, or reports that there is none.
func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if passed := now.Sub(b.mu.at).Seconds(); passed > 0 {
		b.mu.tokens = min(b.burst, b.mu.tokens+passed*b.perSecond)
		b.mu.at = now
	}
	if b.mu.tokens < 1 {
		return false
	}
	b.mu.tokens--
	return true
}

// put gives a token back that was not used.
func (b *bucket) put() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.tokens = min(b.burst, b.mu.tokens+1)
}
