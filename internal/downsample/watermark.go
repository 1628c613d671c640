package downsample

import "time"

// A Watermark says that what had arrived by RunMS is in all buckets that end at
// or before UntilMS.
type Watermark struct {
	UntilMS int64 `json:"until"`
	RunMS   int64 `json:"run"`
}

// Next is the time from which on the next run computes. Samples that arrive later than
// the horizon after their own time are noted.
func (w Watermark) Next(horizon time.Duration) int64 {
	return min(w.UntilMS, w.RunMS-horizon.Milliseconds())
}
