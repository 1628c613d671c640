package blockfile

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/chunk"
	"varve/internal/model"
)

// walks makes one chunk of counters with random steps per series.
func walks(series, samples int) (pieces []piece) {
	rng := rand.New(rand.NewPCG(1, 2))
	for id := range model.SeriesNumber(series) {
		p := piece{Series: id, Kind: model.Long}
		v := uint64(0)
		for i := range int64(samples) {
			v += rng.Uint64N(1000)
			p.AppendFixed(1_700_000_000_000+i*10_000, v, 0)
		}
		pieces = append(pieces, p)
	}
	return pieces
}

func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct{ series, samples int }{{10_000, 20}, {200, 1000}} {
		b.Run(fmt.Sprintf("series=%d/samples=%d", c.series, c.samples), func(b *testing.B) {
			b.ReportAllocs()
			pieces := walks(c.series, c.samples)
			fs := vfs.NewMem()
			var bytes int64
			for b.Loop() {
				w, err := Create(fs, path, chunk.Fast, Origin{Sequence: 1})
				if err != nil {
					b.Fatal(err)
				}
				for i := range pieces {
					if err := w.Add(pieces[i].Series, pieces[i].Kind, &pieces[i].Columns, 0, pieces[i].Len()); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := w.Finish(); err != nil {
					b.Fatal(err)
				}
				bytes = w.Size()
			}
			total := float64(c.series) * float64(c.samples)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/total, "ns/sample")
			b.ReportMetric(float64(bytes)/total, "B/sample")
		})
	}
}

// BenchmarkIter finds the chunks of every series of a file, as a merge does, or
// of random ones through the cache, as queries do.
func BenchmarkIter(b *testing.B) {
	const series = 10_000
	fs := vfs.NewMem()
	writeFile(b, fs, path, walks(series, 20))
	for _, order := range []string{"ascending", "random"} {
		b.Run(fmt.Sprintf("series=%d/order=%s", series, order), func(b *testing.B) {
			b.ReportAllocs()
			f, err := Open(fs, path, 1, NewCache(64<<20))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			rng := rand.New(rand.NewPCG(1, 2))
			it := f.Iter(order == "random")
			for b.Loop() {
				for id := range model.SeriesNumber(series) {
					if order == "random" {
						id = model.SeriesNumber(rng.Uint32N(series))
					}
					it.Seek(id, model.AllTime, false)
					if e, err := it.Next(); e == nil || err != nil {
						b.Fatal(id, err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/series, "ns/series")
		})
	}
}
