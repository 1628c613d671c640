package ingest

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"varve/internal/store"
	"varve/internal/work"
)

// A sampleRate limits the samples that are stored per second. A block is stored whole and counted
// afterwards, because the number of its samples is not known before; the next sender waits until
// the debt is worked off.
type sampleRate struct {
	section string // see Options.Limits
	limiter *rate.Limiter
	limit   atomic.Int64 // samples per second, 0 for no limit
}

func newSampleRate(section string, perSecond int, now time.Time) *sampleRate {
	r := &sampleRate{section: section, limiter: rate.NewLimiter(rate.Inf, 1)}
	r.set(perSecond, now)
	return r
}

// set changes the limit. One second's worth of samples may come at once.
func (r *sampleRate) set(perSecond int, now time.Time) {
	if perSecond > 0 {
		r.limiter.SetLimitAt(now, rate.Limit(perSecond))
		r.limiter.SetBurstAt(now, perSecond)
	}
	r.limit.Store(int64(perSecond))
}

// wait delays the sender of a block until its turn. If that is further away than patience, and
// patience is greater than 0, wait returns a [store.LimitError] at once; otherwise it waits as long
// as ctx lasts. waited reports whether it had to wait.
func (r *sampleRate) wait(ctx context.Context, now time.Time, patience time.Duration) (waited bool, err error) {
	limit := r.limit.Load()
	if limit == 0 {
		return false, nil
	}
	delay := r.debt(now)
	if delay == 0 {
		return false, nil
	}
	if patience > 0 && delay > patience {
		return true, &store.LimitError{Limit: limitKey(r.section, "ingest.samples_per_second"), Max: limit, Wait: delay,
			What: "send the points again in " + delay.Round(time.Millisecond).String()}
	}
	return true, work.Pause(ctx, delay)
}

// limitKey is the full key of a limit whose key for the default tenant is key.
func limitKey(section, key string) string {
	if section == "" {
		return key
	}
	return section + strings.TrimPrefix(key, "ingest")
}

// debt is how long it takes until the stored samples are within the limit.
func (r *sampleRate) debt(now time.Time) time.Duration {
	missing := -r.limiter.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(missing / float64(r.limiter.Limit()) * float64(time.Second)))
}

// stored counts the samples of a block.
func (r *sampleRate) stored(now time.Time, n int) {
	if r.limit.Load() == 0 {
		return
	}
	for burst := r.limiter.Burst(); n > 0; n -= burst { // it accepts no more at once
		r.limiter.ReserveN(now, min(n, burst))
	}
}
