package downsample

import "time"

// A Watermark says that what had arrived by RunMS is in all buckets that end at
// or before UntilMS.
type Watermark struct {
	UntilMS int64 `json:"until"`
	RunMS   int64 `json:"run"`

	// HorizonMS is the horizon that the run had. 0 if an earlier version has stored the watermark.
	HorizonMS int64 `json:"horizon,omitempty"`
}

// Next is the time from which on the next run computes. Samples that arrive later than
// the horizon after their own time are noted. If the horizon is shorter than it was, some arrived
// since that were not noted by the longer one.
func (w Watermark) Next(horizon time.Duration) int64 {
	return min(w.UntilMS, w.RunMS-max(horizon.Milliseconds(), w.HorizonMS))
}

// maxPutBack is by how much a clock is put back at most. Beyond that it is rather the present
// time that is wrong: that of a machine that does not know the time yet after a start. Results of
// all times would be computed again once it does.
const maxPutBack = 31 * 24 * time.Hour

// Before returns the watermark as a run has it that begins at nowMS. A later RunMS is of a run
// before the clock was put back. Samples that come in time by the present clock are not noted,
// so what ends after that time has to be computed again.
func (w Watermark) Before(nowMS int64) Watermark {
	if w.RunMS-nowMS <= maxPutBack.Milliseconds() {
		w.RunMS = min(w.RunMS, nowMS)
	}
	return w
}

// Moved returns the watermark after a batch of a run that began with w and has reached next.
// currentMS is where the current bucket begins. While w is beyond that, since the clock was put
// back, UntilMS stays, because the clock may have been right before; RunMS says alone where the
// next run begins.
func (w Watermark) Moved(next Watermark, currentMS int64, horizon time.Duration) Watermark {
	next.HorizonMS = horizon.Milliseconds()
	if w.UntilMS <= currentMS {
		return next
	}
	return Watermark{UntilMS: w.UntilMS, RunMS: min(next.RunMS, next.UntilMS+next.HorizonMS), HorizonMS: next.HorizonMS}
}
