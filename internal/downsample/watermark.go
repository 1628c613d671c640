package downsample

import "time"

// A Watermark says that what had arrived by RunMS is in all buckets that end at
// or before UntilMS.
type Watermark struct {
	UntilMS int64 `json:"until"`
	RunMS   int64 `json:"run"`
}

// Next is the time from which on a run at nowMS computes. Samples that arrive later than
// the horizon after their own time are noted.
//
// A last run after nowMS had a clock that was ahead. What it has seen of the present is not
// known, so this run begins where it would if the last one had been now.
func (w Watermark) Next(nowMS int64, horizon time.Duration) int64 {
	return min(w.UntilMS, min(w.RunMS, nowMS)-horizon.Milliseconds())
}
