package record

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// hosts makes a batch of neighbouring series at one time, as a collector sends
// them: 10 of 20 are values with two decimals, 7 counters, 3 constants.
func hosts(samples int) (*store.Batch, []model.Kind) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := &store.Batch{}
	var kinds []model.Kind
	for i := range samples {
		ms := 1_700_000_000_000 + int64(i/20)*10
		ref := store.Ref(1000 + i)
		switch {
		case i%20 < 10:
			b.AddDouble(ref, ms, float64(rng.IntN(10_000))/100, 0)
			kinds = append(kinds, model.Double)
			continue
		case i%20 < 17:
			b.AddLong(ref, ms, rng.Int64N(1_000_000), 0)
		default:
			b.AddLong(ref, ms, 1, 0)
		}
		kinds = append(kinds, model.Long)
	}
	return b, kinds
}

// entropy makes a batch of doubles that have no short decimal.
func entropy(samples int) (*store.Batch, []model.Kind) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := &store.Batch{}
	var kinds []model.Kind
	for i := range samples {
		b.AddDouble(store.Ref(1000+i), 1_700_000_000_000, math.Exp(rng.Float64()), 0)
		kinds = append(kinds, model.Double)
	}
	return b, kinds
}

func BenchmarkRecord(b *testing.B) {
	for _, c := range []struct {
		name string
		make func(int) (*store.Batch, []model.Kind)
	}{{"hosts", hosts}, {"entropy", entropy}} {
		for _, n := range []int{10, 100, 500} {
			batch, kinds := c.make(n)
			enc := AppendSamples(nil, batch, kinds)
			report := func(b *testing.B) {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/sample")
				b.ReportMetric(float64(len(enc))/float64(n), "B/sample")
			}
			b.Run(fmt.Sprintf("encode/values=%s/batch=%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					enc = AppendSamples(enc[:0], batch, kinds)
				}
				report(b)
			})
			b.Run(fmt.Sprintf("decode/values=%s/batch=%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				kind := func(id model.SeriesNumber) model.Kind { return kinds[id-1000] }
				var got store.Batch
				for b.Loop() {
					got.Reset(0)
					if err := Samples(enc, kind, &got); err != nil {
						b.Fatal(err)
					}
				}
				report(b)
			})
		}
	}
}
