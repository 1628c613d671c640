package expiry

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"varve/internal/model"
)

// TestCollector compares what a scan remembers with all that it has seen.
func TestCollector(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := collector{nowMS: 100, expired: roaring.New(), allMS: math.MaxInt64}
		n := rapid.SampledFrom([]int{1, Kept, Kept + 1, 5 * Kept}).Draw(t, "series")
		span := rapid.SampledFrom([]int64{1, 150, 1 << 40}).Draw(t, "span")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		all := make([]int64, n)
		for id := range all {
			if all[id] = rng.Int64N(span); rng.IntN(10) == 0 {
				all[id] = math.MaxInt64
			}
			c.add(model.SeriesNumber(id), all[id])
		}
		c.cut()
		kept := make(map[model.SeriesNumber]bool)
		for i, x := range c.next {
			kept[x.id] = true
			if x.ms != all[x.id] || i > 0 && c.next[i-1].ms > x.ms {
				t.Fatalf("series %d, which expires at %d, is remembered with %d", x.id, all[x.id], x.ms)
			}
		}
		if len(c.next) > Kept {
			t.Fatalf("%d are remembered", len(c.next))
		}
		for id, ms := range all {
			if got := c.expired.Contains(uint32(id)); got != (ms <= 100) {
				t.Fatalf("series %d, which expires at %d, has expired: %v", id, ms, got)
			}
			if ms > 100 && ms < c.allMS && !kept[model.SeriesNumber(id)] {
				t.Fatalf("series %d, which expires at %d, is forgotten although all before %d are known", id, ms, c.allMS)
			}
		}
	})
}
