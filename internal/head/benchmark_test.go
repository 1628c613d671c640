package head

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

const batchSamples = 500

// feed makes batches of samples of many series in turn, as collectors send
// them: half of the series are random walks with two decimals, the rest growing
// counters and a few constants.
type feed struct {
	series int
	run    int // samples of a series that follow each other
	next   int
	ms     int64
	values []float64
	rng    *rand.Rand
	kinds  []model.Kind
	batch  store.Batch
}

func newFeed(series int) *feed {
	return &feed{series: series, run: 1, ms: 1_700_000_000_000, values: make([]float64, series), rng: rand.New(rand.NewPCG(1, 2))}
}

func (f *feed) kind(id int) model.Kind {
	if id%20 < 10 {
		return model.Double
	}
	return model.Long
}

func (f *feed) fill(samples int) {
	f.batch.Reset(0)
	f.kinds = f.kinds[:0]
	for i := range samples {
		id, ms := f.next, f.ms+int64(i%f.run)*10_000
		v := &f.values[id]
		switch {
		case id%20 < 10:
			*v = math.Round(*v*100+float64(f.rng.IntN(201)-100)) / 100
			f.batch.AddDouble(store.Ref(id), ms, *v, 0)
		case id%20 < 17:
			*v += float64(f.rng.IntN(1000))
			f.batch.AddLong(store.Ref(id), ms, int64(*v), 0)
		default:
			f.batch.AddLong(store.Ref(id), ms, 1, 0)
		}
		f.kinds = append(f.kinds, f.kind(id))
		if (i+1)%f.run > 0 {
			continue
		}
		if f.next++; f.next == f.series {
			f.next, f.ms = 0, f.ms+int64(f.run)*10_000
		}
	}
}

// BenchmarkAppend appends rounds of samples of all series to an empty head; one
// operation is a whole head, made of batches of 500. The time of making the
// batches is not counted in ns/sample.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ series, rounds, run int }{{4_000, 250, 1}, {4_000, 250, 5}, {200_000, 20, 1}, {100, 10_000, 1}} {
		b.Run(fmt.Sprintf("series=%d/samples=%d/run=%d", c.series, c.rounds, c.run), func(b *testing.B) {
			var before, after runtime.MemStats
			var took time.Duration
			total := c.series * c.rounds
			f := newFeed(c.series)
			f.run = c.run
			f.fill(batchSamples)
			var h *Head
			for b.Loop() {
				h = nil
				runtime.GC()
				runtime.ReadMemStats(&before)
				h, f.next, f.ms = New(48<<20), 0, 1_700_000_000_000
				for left := total; left > 0; left -= batchSamples {
					f.fill(batchSamples)
					began := time.Now()
					h.Append(&f.batch, f.kinds)
					took += time.Since(began)
				}
				runtime.ReadMemStats(&after)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/float64(total), "ns/sample")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(total), "B-allocated/sample")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(total), "allocs/sample")
			b.ReportMetric(float64(h.Bytes())/float64(c.series), "B/series")
			b.ReportMetric(float64(h.Bytes())/float64(total), "B/sample")
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/float64(c.series), "heap-B/series")
			runtime.KeepAlive(h)
		})
	}
}

// BenchmarkSnapshot reads one series with all of its samples decoded.
func BenchmarkSnapshot(b *testing.B) {
	const rounds = 1000
	for _, order := range []string{"ascending", "shuffled"} {
		b.Run(fmt.Sprintf("samples=%d/order=%s", rounds, order), func(b *testing.B) {
			b.ReportAllocs()
			h := New(48 << 20)
			f := newFeed(20)
			f.fill(20 * rounds)
			if order == "shuffled" {
				s := f.batch.Samples
				for i := range rounds { // each hundredth comes late
					if i%100 == 99 {
						for id := range 20 {
							s[i*20+id].TimeMS -= 450_000
						}
					}
				}
			}
			h.Append(&f.batch, f.kinds)
			var run Run
			var c model.Columns
			for b.Loop() {
				for id := range model.SeriesNumber(20) {
					if _, err := h.Snapshot(id, model.AllTime, &run); err != nil {
						b.Fatal(err)
					}
					c.Reset()
					for _, fr := range run.Fragments {
						if err := run.Decode(fr, &c); err != nil {
							b.Fatal(err)
						}
					}
					for i := range run.Open.Times {
						c.AppendFrom(run.Kind, &run.Open, i)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20/rounds, "ns/sample")
		})
	}
}

// BenchmarkSnapshotOfMany reads some open samples of each of many series. Those of a series are far apart in memory.
func BenchmarkSnapshotOfMany(b *testing.B) {
	const series, rounds = 20_000, 160
	h := New(MaxBytes)
	f := newFeed(series)
	for range series * rounds / batchSamples {
		f.fill(batchSamples)
		h.Append(&f.batch, f.kinds)
	}
	for _, back := range []int64{30, 160} {
		b.Run(fmt.Sprintf("rounds=%d", back), func(b *testing.B) {
			within := model.TimeRange{StartMS: f.ms - back*10_000}
			within.EndMS = within.StartMS + 29*10_000
			var run Run
			id := model.SeriesNumber(0)
			for b.Loop() {
				if _, err := h.Snapshot(id, within, &run); err != nil || len(run.Open.Times) != 30 {
					b.Fatal(len(run.Open.Times), err)
				}
				id = (id + 1) % series
			}
		})
	}
}
