package downsample

import "time"

// A Watermark states that all buckets that end at or before UntilMS include every
// sample that had arrived by RunMS.
type Watermark struct {
	UntilMS int64 `json:"until"`
	RunMS   int64 `json:"run"`

	// HorizonMS is the horizon of the run, 0 if an earlier version stored the
	// watermark.
	HorizonMS int64 `json:"horizon,omitempty"`
}

// Next is the time from which the next run computes. Samples that arrive later than the
// horizon after their own time are noted. If the horizon is now shorter than that
// of the last run, some samples were not noted because the horizon was longer when
// they arrived. So the longer of the two horizons counts.
func (w Watermark) Next(horizon time.Duration) int64 {
	return min(w.UntilMS, w.RunMS-max(horizon.Milliseconds(), w.HorizonMS))
}

// maxPutBack bounds by how much a clock is assumed to have been set back. If the
// difference is larger, the present time is probably wrong, as on a machine that has
// not synchronized its clock after a start. Trusting it would recompute the results of
// all times.
const maxPutBack = 31 * 24 * time.Hour

// Before returns the watermark for a run that begins at nowMS. If RunMS is later, the
// clock was set back after that run. Samples that arrive in time by the present clock
// are not noted, so buckets that end after nowMS have to be recomputed.
func (w Watermark) Before(nowMS int64) Watermark {
	if w.RunMS-nowMS <= maxPutBack.Milliseconds() {
		w.RunMS = min(w.RunMS, nowMS)
	}
	return w
}

// Moved returns the watermark after a batch of a run that began with w and has reached
// next. currentMS is where the current bucket begins. If w.UntilMS is later, the clock
// was set back. It may have been right before, so UntilMS stays, and RunMS alone
// determines where the next run begins.
func (w Watermark) Moved(next Watermark, currentMS int64, horizon time.Duration) Watermark {
	next.HorizonMS = horizon.Milliseconds()
	if w.UntilMS <= currentMS {
		return next
	}
	return Watermark{UntilMS: w.UntilMS, RunMS: min(next.RunMS, next.UntilMS+next.HorizonMS), HorizonMS: next.HorizonMS}
}
