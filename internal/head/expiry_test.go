package head

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"varve/internal/model"
	"varve/internal/store"
)

// TestExpiry compares Expiry with the samples of each series, and checks that Expired
// yields each series once it has expired, and no other.
func TestExpiry(t *testing.T) {
	if recordBytes != 56 {
		t.Errorf("a record has %d bytes, want 56: each of a million series pays for it", recordBytes)
	}
	ids := []model.SeriesNumber{0, 1, 63, 64, 5000, 70_000, 3_000_000, math.MaxUint32 - 1}
	rapid.Check(t, func(t *rapid.T) {
		h := New(0)
		samples := make(map[model.SeriesNumber]map[int64]uint32) // times-to-live by time
		mixed := make(map[model.SeriesNumber]bool)               // has, or had, several
		told := make(map[model.SeriesNumber]bool)
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.SampledFrom(ids).Draw(t, "id")
			switch rapid.SampledFrom([]string{"append", "append", "append", "delete", "look"}).Draw(t, "step") {
			case "append":
				ttl := rapid.SampledFrom([]uint32{0, 1, 1, 1, 60}).Draw(t, "ttl")
				if samples[id] == nil {
					samples[id] = make(map[int64]uint32)
				}
				var b store.Batch
				var kinds []model.Kind
				from := now + rapid.Int64Range(-3000, 3000).Draw(t, "ms")
				until := from + rapid.Int64Range(1, 100).Draw(t, "n")
				for ms := from; ms < until; ms++ {
					b.AddLong(store.Ref(id), ms, ms, ttl)
					kinds = append(kinds, model.Long)
					for _, other := range samples[id] {
						mixed[id] = mixed[id] || other != ttl
					}
					samples[id][ms] = ttl
				}
				h.Append(&b, kinds)
				delete(told, id)
			case "delete":
				r := model.TimeRange{StartMS: now + rapid.Int64Range(-4000, 4000).Draw(t, "start")}
				r.EndMS = r.StartMS + rapid.Int64Range(0, 8000).Draw(t, "span")
				if err := h.Delete(id, r); err != nil {
					t.Fatal(err)
				}
				for ms := range samples[id] {
					if r.Contains(ms) {
						delete(samples[id], ms)
						delete(told, id)
					}
				}
				if len(samples[id]) == 0 {
					delete(samples, id)
					delete(mixed, id)
				}
			default:
				now += rapid.Int64Range(0, 5000).Draw(t, "later")
				h.Expired(now, func(id model.SeriesNumber) {
					if ms, ok := h.Expiry(id); !ok || ms > now {
						t.Fatalf("at %d ms, told of series %d, which expires at %d ms (%v)", now, id, ms, ok)
					}
					told[id] = true
				})
				for id := range samples {
					if ms, _ := h.Expiry(id); ms <= now && !told[id] {
						t.Fatalf("at %d ms, not told of series %d, expired at %d ms", now, id, ms)
					}
				}
			}
			for _, id := range ids {
				want := int64(math.MinInt64)
				for ms, ttl := range samples[id] {
					want = max(want, model.ExpiryMS(ms, ttl))
				}
				ms, ok := h.Expiry(id)
				if ok != (samples[id] != nil) || ok && (ms < want || ms > want && !mixed[id]) {
					t.Fatalf("series %d expires at %d ms (%v), want %d ms (several times-to-live: %v)", id, ms, ok, want, mixed[id])
				}
			}
		}
	})
}
