package downsample

import (
	"testing"
	"time"
)

// TestWatermarkAndClock: after a clock was put back, runs begin where the clock is now, however
// they are interrupted, and where they had been is not forgotten. A clock that is put back by
// more than a month is not believed.
func TestWatermarkAndClock(t *testing.T) {
	const hour, day = int64(3_600_000), int64(86_400_000)
	for name, c := range map[string]struct {
		mark, next   Watermark
		now, current int64
		want         Watermark
		start        int64 // of the run at now
	}{
		"no jump":           {Watermark{9 * hour, 10 * hour}, Watermark{10 * hour, 11 * hour}, 11 * hour, 10 * hour, Watermark{10 * hour, 11 * hour}, 9 * hour},
		"put back":          {Watermark{2 * day, 2*day + hour}, Watermark{day, day + 5}, day + 5, day, Watermark{2 * day, day + 5}, day + 5 - hour},
		"after a batch":     {Watermark{2 * day, day}, Watermark{day + 2*hour, day + 9*hour}, day + 9*hour, day + 9*hour, Watermark{2 * day, day + 3*hour}, day - hour},
		"it has caught up":  {Watermark{2 * day, 2*day - hour}, Watermark{2 * day, 2*day + 7}, 2*day + 7, 2 * day, Watermark{2 * day, 2*day + 7}, 2*day - 2*hour},
		"by a month":        {Watermark{32 * day, 32 * day}, Watermark{day, day}, day, day, Watermark{32 * day, day}, day - hour},
		"by more, no batch": {Watermark{32*day + 1, 32*day + 1}, Watermark{}, day, day, Watermark{}, 32*day + 1 - hour},
	} {
		mark := c.mark.Before(c.now)
		if got := mark.Next(time.Hour); got != c.start {
			t.Errorf("%s: the run begins at %d, want %d", name, got, c.start)
		}
		if c.next == (Watermark{}) {
			continue
		}
		if got := mark.Moved(c.next, c.current, time.Hour); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
