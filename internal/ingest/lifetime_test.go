package ingest_test

import (
	"testing"
	"time"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/store"
)

// TestLifetime: how long a sample lives is told from its own time, less what has passed of it
// if lives count from the write.
func TestLifetime(t *testing.T) {
	const now = 1_000_000
	for _, c := range []struct {
		from ingest.TTLFrom
		ms   int64
		ttl  uint32
		want int64
	}{
		{ingest.FromWrite, now, 60, 60_000},
		{ingest.FromWrite, now - 5_000, 60, 55_000},
		{ingest.FromWrite, now + 5_000, 60, 60_000},
		{ingest.FromWrite, now - 60_000, 60, 0},
		{ingest.FromWrite, now - 90_000, 60, 0},
		{ingest.FromWrite, now - 5_000, 0, 0},
		{ingest.FromTimestamp, now - 5_000, 60, 60_000},
		{ingest.FromTimestamp, now - 90_000, 60, 60_000},
		{ingest.FromTimestamp, now, 0, 0},
	} {
		p, _ := ingesttest.NewPipelineAt(&ingesttest.Recorder{}, func(x *ingest.Config) {
			x.TTLFrom, x.DefaultTTL = c.from, 90*time.Second
		}, func() time.Time { return time.UnixMilli(now) })
		if got := p.Lifetime(&store.Sample{TimeMS: c.ms, TTL: c.ttl}, now); got != c.want {
			t.Errorf("%s, time %d, time-to-live %d: %d ms, want %d", c.from, c.ms, c.ttl, got, c.want)
		}
		if got := p.DefaultLifetime(); got != 90_000 {
			t.Errorf("by default: %d ms", got)
		}
	}
}
