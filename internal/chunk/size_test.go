package chunk

import (
	"math"
	"math/rand/v2"
	"testing"

	"varve/internal/model"
	"varve/internal/quantile"
)

// TestSizes pins what chunks may cost, in bytes per sample. The limits are a
// little above what was measured when they were written.
func TestSizes(t *testing.T) {
	limits := map[string][3]float64{ // 64 fast, 1024 fast, 1024 best
		"gauge2dec":   {1.43, 1.20, 1.18},
		"counter":     {1.51, 1.27, 1.27},
		"const":       {0.24, 0.017, 0.017},
		"fullentropy": {7.3, 7.0, 6.9},
		"intgauge":    {0.64, 0.41, 0.32},
		"slow1dec":    {0.80, 0.59, 0.33},
		"steadycnt":   {0.55, 0.28, 0.19},
	}
	for i, shape := range shapes {
		for j, limit := range limits[shape.name] {
			n, level := []int{64, 1024, 1024}[j], []Level{Fast, Fast, Best}[j]
			size, samples := 0, 0
			for _, c := range benchColumns(i, n, 0) {
				size += len(Append(nil, model.Double, c, 0, n, level))
				samples += n
			}
			if per := float64(size) / float64(samples); per > limit {
				t.Errorf("%s, %d samples, level %d: %.3f bytes per sample, limit %.3f", shape.name, n, level, per, limit)
			}
		}
	}
}

// TestAggregateSizes pins what a bucket of six samples costs, in bytes. Of samples at
// equal steps the counts and the times of the last ones cost nothing.
func TestAggregateSizes(t *testing.T) {
	limits := map[string]float64{"gauge2dec": 8.6, "counter": 6.5, "const": 0.1, "intgauge": 2.6, "slow1dec": 5.1, "steadycnt": 1.7}
	for i, shape := range shapes {
		limit, ok := limits[shape.name]
		if !ok {
			continue
		}
		size, buckets := 0, 0
		for _, raw := range benchColumns(i, 6*1000, 0) {
			c := &model.Columns{}
			for from := 0; from < raw.Len(); from += 6 {
				var a model.Aggregate
				for at := from; at < from+6; at++ {
					a.Add(raw.Times[at], math.Float64frombits(raw.Values[at]))
				}
				c.AppendBytes(raw.Times[from], a.Append(nil), 0)
			}
			size += len(Append(nil, model.AggregateKind, c, 0, c.Len(), Best))
			buckets += c.Len()
		}
		if per := float64(size) / float64(buckets); per > limit {
			t.Errorf("%s: %.3f bytes per bucket, limit %.3f", shape.name, per, limit)
		}
	}
}

// TestSketchSizes pins what the sketch of a bucket of latencies costs, in bytes: of a minute
// with 6 samples, and of an hour with 360.
func TestSketchSizes(t *testing.T) {
	values := map[string]func(r *rand.Rand) float64{
		"whole ms":    func(r *rand.Rand) float64 { return math.Round(math.Exp(3 + r.NormFloat64()/2)) },
		"full digits": func(r *rand.Rand) float64 { return math.Exp(3 + r.NormFloat64()/2) },
		"narrow":      func(r *rand.Rand) float64 { return 100 + 3*r.NormFloat64() },
		"heavy tail":  func(r *rand.Rand) float64 { return math.Pow(r.Float64(), -2) },
		"constant":    func(*rand.Rand) float64 { return 5 },
	}
	limits := map[string][2]float64{"whole ms": {6, 46}, "full digits": {8.3, 68}, "narrow": {2.5, 12}, "heavy tail": {8.6, 115}, "constant": {0.1, 0.2}}
	for name, next := range values {
		for i, samples := range []int{6, 360} {
			r := rand.New(rand.NewPCG(1, 1))
			with, without := &model.Columns{}, &model.Columns{}
			for n := range 1000 {
				var a model.Aggregate
				var all []float64
				for k := range samples {
					all = append(all, next(r))
					a.Add(int64(n*samples+k)*10_000, all[k])
				}
				without.AppendBytes(int64(n*samples)*10_000, a.Append(nil), 0)
				a.Sketch = quantile.Of(all...)
				with.AppendBytes(int64(n*samples)*10_000, a.Append(nil), 0)
			}
			base := float64(len(Append(nil, model.AggregateKind, without, 0, 1000, Best))) / 1000
			per := float64(len(Append(nil, model.AggregateKind, with, 0, 1000, Best)))/1000 - base
			t.Logf("%-11s %3d samples: %5.1f bytes, and %5.1f for the sketch", name, samples, base, per)
			if per > limits[name][i] {
				t.Errorf("%s, %d samples: %.1f bytes for a sketch, limit %.1f", name, samples, per, limits[name][i])
			}
		}
	}
}

// pageSize is the size of a page of the given number of chunks with equal
// times, made by next.
func pageSize(level Level, chunks int, kind model.Kind, next func() *model.Columns) int {
	var b PageBuilder
	b.Reset(level)
	for i := range chunks {
		c := next()
		b.Add(model.SeriesNumber(i), kind, c, 0, c.Len())
	}
	return b.Size()
}

func TestSmallChunksInPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	gauge := func(ttl uint32) func() *model.Columns {
		return func() *model.Columns {
			c, v := &model.Columns{}, 50.0
			for i := range 20 {
				v += rng.NormFloat64()
				c.AppendFixed(1_700_000_000_000+int64(i)*10_000, math.Float64bits(math.Round(v*100)/100), ttl)
			}
			return c
		}
	}
	if per := float64(pageSize(Fast, 400, model.Double, gauge(0))) / 400 / 20; per > 1.7 {
		t.Errorf("%.3f bytes per sample for chunks of 20", per)
	}
	without := pageSize(Fast, 1, model.Null, func() *model.Columns { return &model.Columns{Times: []int64{1}} })
	with := pageSize(Fast, 400, model.Null, func() *model.Columns {
		return &model.Columns{Times: []int64{1}, TTLs: []uint32{86400}}
	})
	if per := float64(with-without) / 399; per > 3.1 {
		t.Errorf("%.2f bytes for an entry with shared times and time-to-live", per)
	}
}

func TestRepeatedText(t *testing.T) {
	c := &model.Columns{}
	for i := range 1000 {
		c.AppendBytes(int64(i)*10_000, []byte("status: all systems nominal"), 0)
	}
	if n := len(Append(nil, model.String, c, 0, 1000, Fast)); n > 50 {
		t.Errorf("1000 equal texts of 27 bytes take %d bytes", n)
	}
}

// TestAllocations: with reused encoders and decoders nothing is allocated per
// sample, and nothing per chunk but the Huffman decoder.
func TestAllocations(t *testing.T) {
	c := benchColumns(0, 1024, 10)[0]
	buf := make([]byte, 0, 1<<16)
	var b PageBuilder
	var d Decoder
	var dst model.Columns
	run := func() {
		b.Reset(Fast)
		b.Add(1, model.Double, c, 0, c.Len())
		buf = b.Finish(buf[:0])
		p, err := OpenPage(buf)
		if err != nil {
			t.Fatal(err)
		}
		var e Entry
		dst.Reset()
		for it := p.Iter(); it.Next(&e); {
			if err := d.DecodeEntry(&e, &dst); err != nil {
				t.Fatal(err)
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(20, run); n > 0 {
		t.Errorf("%.0f allocations per chunk", n)
	}
}
