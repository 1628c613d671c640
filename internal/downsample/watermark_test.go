package downsample

import (
	"testing"
	"time"
)

func until(untilMS, runMS int64) Watermark { return Watermark{UntilMS: untilMS, RunMS: runMS} }

// TestWatermarkAndClock: after a clock was set back, runs begin at the present time,
// however they are interrupted, and the former watermark is kept. A clock that is set
// back by more than a month is not trusted.
func TestWatermarkAndClock(t *testing.T) {
	const hour, day = int64(3_600_000), int64(86_400_000)
	for name, c := range map[string]struct {
		mark, next   Watermark
		now, current int64
		want         Watermark
		start        int64 // of the run at now
	}{
		"no jump":           {until(9*hour, 10*hour), until(10*hour, 11*hour), 11 * hour, 10 * hour, until(10*hour, 11*hour), 9 * hour},
		"put back":          {until(2*day, 2*day+hour), until(day, day+5), day + 5, day, until(2*day, day+5), day + 5 - hour},
		"after a batch":     {until(2*day, day), until(day+2*hour, day+9*hour), day + 9*hour, day + 9*hour, until(2*day, day+3*hour), day - hour},
		"it has caught up":  {until(2*day, 2*day-hour), until(2*day, 2*day+7), 2*day + 7, 2 * day, until(2*day, 2*day+7), 2*day - 2*hour},
		"by a month":        {until(32*day, 32*day), until(day, day), day, day, until(32*day, day), day - hour},
		"by more, no batch": {until(32*day+1, 32*day+1), Watermark{}, day, day, Watermark{}, 32*day + 1 - hour},
	} {
		mark := c.mark.Before(c.now)
		if got := mark.Next(time.Hour); got != c.start {
			t.Errorf("%s: the run begins at %d, want %d", name, got, c.start)
		}
		if c.next == (Watermark{}) {
			continue
		}
		c.want.HorizonMS = hour
		if got := mark.Moved(c.next, c.current, time.Hour); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A run goes back by the longer of its horizon and that of the previous run.
func TestWatermarkAndHorizon(t *testing.T) {
	for _, c := range []struct{ former, now, want time.Duration }{
		{0, time.Hour, time.Hour}, // of an earlier version
		{time.Minute, time.Hour, time.Hour},
		{time.Hour, time.Minute, time.Hour},
	} {
		mark := Watermark{UntilMS: 9_000_000, RunMS: 10_000_000, HorizonMS: c.former.Milliseconds()}
		if got := mark.Next(c.now); got != 10_000_000-c.want.Milliseconds() {
			t.Errorf("%+v: the run begins at %d", c, got)
		}
	}
}
