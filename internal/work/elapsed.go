package work

import "time"

// Elapsed is the time between two readings of the clock: the larger of the wall-clock and the
// monotonic difference. The monotonic clock may stop while the machine sleeps, and the wall clock may
// be set back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
