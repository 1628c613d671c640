package chunk

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"varve/internal/model"
)

// shapes are what real series look like; all values are doubles.
var shapes = []struct {
	name string
	next func(rng *rand.Rand) func() float64
}{
	{"gauge2dec", func(rng *rand.Rand) func() float64 {
		v := 50.0
		return func() float64 { v += rng.NormFloat64(); return math.Round(v*100) / 100 }
	}},
	{"counter", func(rng *rand.Rand) func() float64 {
		v := 0.0
		return func() float64 { v += float64(rng.IntN(1000)); return v }
	}},
	{"const", func(*rand.Rand) func() float64 {
		return func() float64 { return 42.5 }
	}},
	{"fullentropy", func(rng *rand.Rand) func() float64 {
		return func() float64 { return rng.Float64() * 100 }
	}},
	{"intgauge", func(rng *rand.Rand) func() float64 {
		v := 50.0
		return func() float64 { v = min(100, max(0, v+rng.NormFloat64())); return math.Floor(v) }
	}},
	{"slow1dec", func(rng *rand.Rand) func() float64 {
		v := 20.0
		return func() float64 {
			if rng.IntN(10) < 3 {
				v = math.Round((v+rng.NormFloat64()/2)*10) / 10
			}
			return v
		}
	}},
	{"steadycnt", func(rng *rand.Rand) func() float64 {
		v := 0.0
		return func() float64 {
			up, down := rng.IntN(8)/7, rng.IntN(8)/7
			v += 100 + float64(up-down)
			return v
		}
	}},
}

// benchColumns makes chunks of n samples, 10 s apart with some jitter, of
// several series of one shape.
func benchColumns(shape, n int, jitterMS int64) []*model.Columns {
	rng := rand.New(rand.NewPCG(uint64(shape), uint64(n)))
	var all []*model.Columns
	for range max(1, 65536/n) {
		next := shapes[shape].next(rng)
		c := &model.Columns{}
		for i := range n {
			ms := 1_700_000_000_000 + int64(i)*10_000
			if jitterMS > 0 {
				ms += rng.Int64N(2*jitterMS+1) - jitterMS
			}
			c.AppendFixed(ms, math.Float64bits(next()), 0)
		}
		all = append(all, c)
	}
	return all
}

var levels = map[Level]string{Fast: "fast", Best: "best"}

// BenchmarkChunk measures single chunks, each with its own times.
func BenchmarkChunk(b *testing.B) {
	for shape := range shapes {
		for _, n := range []int{64, 120, 1024} {
			for _, level := range []Level{Fast, Best} {
				b.Run(fmt.Sprintf("%s/samples=%d/level=%s", shapes[shape].name, n, levels[level]), func(b *testing.B) {
					benchChunk(b, benchColumns(shape, n, 0), n, level)
				})
			}
		}
	}
}

// BenchmarkJitter is BenchmarkChunk with times 10 ms around their grid.
func BenchmarkJitter(b *testing.B) {
	for shape := range shapes {
		for _, level := range []Level{Fast, Best} {
			b.Run(fmt.Sprintf("%s/samples=1024/level=%s", shapes[shape].name, levels[level]), func(b *testing.B) {
				benchChunk(b, benchColumns(shape, 1024, 10), 1024, level)
			})
		}
	}
}

func benchChunk(b *testing.B, all []*model.Columns, n int, level Level) {
	var buf []byte
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		size := 0
		for i := range b.N {
			buf = Append(buf[:0], model.Double, all[i%len(all)], 0, n, level)
			size += len(buf)
		}
		report(b, n, size)
	})
	var chunks [][]byte
	for _, c := range all {
		chunks = append(chunks, Append(nil, model.Double, c, 0, n, level))
	}
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var d Decoder
		var dst model.Columns
		for i := range b.N {
			dst.Reset()
			if _, err := d.Decode(chunks[i%len(chunks)], model.Double, &dst); err != nil {
				b.Fatal(err)
			}
		}
		report(b, n, 0)
	})
}

func report(b *testing.B, samples, size int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*samples), "ns/sample")
	if size > 0 {
		b.ReportMetric(float64(size)/float64(b.N*samples), "bytes/sample")
	}
}

// BenchmarkPage measures pages of about 16 KB, header and statistics included,
// their chunks at the same times.
func BenchmarkPage(b *testing.B) {
	for shape := range shapes {
		for _, n := range []int{20, 120, 1024} {
			for _, level := range []Level{Fast, Best} {
				b.Run(fmt.Sprintf("%s/samples=%d/level=%s", shapes[shape].name, n, levels[level]), func(b *testing.B) {
					benchPage(b, benchColumns(shape, n, 0), n, level)
				})
			}
		}
	}
}

func benchPage(b *testing.B, all []*model.Columns, n int, level Level) {
	var builder PageBuilder
	var page []byte
	build := func() (samples int) {
		builder.Reset(level)
		for i := model.SeriesNumber(0); builder.Size() < 16<<10 && i < 1000; i++ {
			builder.Add(i, model.Double, all[int(i)%len(all)], 0, n)
		}
		page = builder.Finish(page[:0])
		return builder.Entries() * n
	}
	samples := build()
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			build()
		}
		report(b, samples, len(page)*b.N)
	})
	p, err := OpenPage(page)
	if err != nil {
		b.Fatal(err)
	}
	var e Entry
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var d Decoder
		var dst model.Columns
		for range b.N {
			dst.Reset()
			for it := p.Iter(); it.Next(&e); {
				if err := d.DecodeEntry(&e, &dst); err != nil {
					b.Fatal(err)
				}
			}
		}
		report(b, samples, 0)
	})
	b.Run("iterate", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for it := p.Iter(); it.Next(&e); {
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*builder.Entries()), "ns/entry")
	})
	b.Run("pass", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			it := p.Iter()
			for it.Want(math.MaxUint32); it.Next(&e); {
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*builder.Entries()), "ns/entry")
	})
}
