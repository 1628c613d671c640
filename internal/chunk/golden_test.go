package chunk

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/quantile"
)

var update = flag.Bool("update", false, "write the golden pages again; only with a new format version")

// TestGolden opens pages that earlier builds wrote and compares all they hold
// with a dump. The encoder may write better pages some day; these stay.
func TestGolden(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	pages, err := filepath.Glob("testdata/golden/*.page")
	if err != nil || len(pages) < 2 {
		t.Fatalf("%d golden pages, %v", len(pages), err)
	}
	for _, name := range pages {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(name, ".page") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			got := dump(t, b)
			if got == string(want) {
				return
			}
			g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
			for i := range min(len(g), len(w)) {
				if g[i] != w[i] {
					t.Fatalf("line %d: got %q, want %q", i+1, g[i], w[i])
				}
			}
			t.Fatalf("%d lines, want %d", len(g), len(w))
		})
	}
}

func dump(t *testing.T, b []byte) string {
	p, err := OpenPage(b)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var d Decoder
	var e Entry
	it := p.Iter()
	for it.Next(&e) {
		fmt.Fprintf(&out, "series %d %s: %d samples %d..%d, %d bytes, %s\n",
			e.Series, e.Kind, e.Count, e.FirstMS, e.LastMS, e.SizeBytes, e.CodecName())
		if e.HasTTL {
			fmt.Fprintf(&out, "  expires at %d\n", e.MaxExpiryMS)
		}
		if s := e.Stats; e.HasStats {
			fmt.Fprintf(&out, "  first %x last %x min %v max %v sum %v (%x)\n",
				s.First, s.Last, s.Min, s.Max, s.Sum, math.Float64bits(s.Sum))
		}
		var c model.Columns
		if err := d.DecodeEntry(&e, &c); err != nil {
			t.Fatal(err)
		}
		for i := range c.Len() {
			fmt.Fprintf(&out, "  %d", c.Times[i])
			switch {
			case e.Kind == model.Long:
				fmt.Fprintf(&out, " %d", int64(c.Values[i]))
			case e.Kind == model.Double:
				fmt.Fprintf(&out, " %016x", c.Values[i])
			case e.Kind.Variable():
				fmt.Fprintf(&out, " %q", c.Bytes(i))
			}
			if ttl := c.TTL(i); ttl > 0 {
				fmt.Fprintf(&out, " ttl %d", ttl)
			}
			out.WriteByte('\n')
		}
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return out.String()
}

func writeGolden(t *testing.T) {
	if err := os.MkdirAll("testdata/golden", 0o755); err != nil {
		t.Fatal(err)
	}
	for level, name := range levels {
		writeGoldenPage(t, name, level, goldenChunks())
		writeGoldenPage(t, "aggregates-"+name, level, goldenAggregates())
		writeGoldenPage(t, "sketches-"+name, level, goldenSketches())
	}
}

func writeGoldenPage(t *testing.T, name string, level Level, chunks []added) {
	var b PageBuilder
	b.Reset(level)
	for i, g := range chunks {
		b.Add(model.SeriesNumber(i*i*7), g.kind, g.c, 0, g.c.Len())
	}
	page := b.Finish(nil)
	base := fmt.Sprintf("testdata/golden/v%d-%s", pageVersion, name)
	for path, content := range map[string][]byte{base + ".page": page, base + ".txt": []byte(dump(t, page))} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// goldenAggregates are buckets of a minute: of samples at equal steps, of uneven
// ones, and values that are no aggregates.
func goldenAggregates() []added {
	regular, uneven, odd := &model.Columns{}, &model.Columns{}, &model.Columns{}
	for i := range int64(40) {
		var even, jittered model.Aggregate
		ms := 1_700_000_000_000 + 60_000*i
		for k := range int64(6) {
			even.Add(ms+10_000*k, float64(i*k)/10)
			jittered.Add(ms+10_000*k+i*k%7*100, math.Sqrt(float64(i+k)))
		}
		regular.AppendBytes(ms, even.Append(nil), 0)
		uneven.AppendBytes(ms+i*i, jittered.Append(nil), 3600)
		odd.AppendBytes(ms, even.Append(nil)[i%2:], 0)
	}
	return []added{{kind: model.AggregateKind, c: regular}, {kind: model.AggregateKind, c: uneven}, {kind: model.AggregateKind, c: odd}}
}

// goldenSketches are buckets of a minute and of an hour with sketches, of which some lack
// one, and buckets whose sketches are all the same.
func goldenSketches() []added {
	minutes, hours, same := &model.Columns{}, &model.Columns{}, &model.Columns{}
	bucket := func(ms int64, n int, value func(k int) float64) []byte {
		var a model.Aggregate
		var values []float64
		for k := range n {
			values = append(values, value(k))
			a.Add(ms+int64(k)*10_000, value(k))
		}
		a.Sketch = quantile.Of(values...)
		return a.Append(nil)
	}
	for i := range 40 {
		ms := 1_700_000_000_000 + 60_000*int64(i)
		b := bucket(ms, 6, func(k int) float64 { return float64((i*7+k*k*13)%90) - 5 })
		if i%10 == 9 {
			b = b[:model.AggregateSize]
		}
		minutes.AppendBytes(ms, b, 0)
		hours.AppendBytes(60*ms, bucket(60*ms, 360, func(k int) float64 { return math.Sqrt(float64((i+k)*(k%37) + 1)) }), 0)
		same.AppendBytes(ms, bucket(ms, 6, func(int) float64 { return 42.5 }), 0)
	}
	return []added{{kind: model.AggregateKind, c: minutes}, {kind: model.AggregateKind, c: hours}, {kind: model.AggregateKind, c: same}}
}

// goldenChunks takes every way of writing a column once.
func goldenChunks() []added {
	const start = 1_700_000_000_000
	noise := uint64(1)
	next := func(n int) int { // xorshift, so that it never changes
		noise ^= noise << 13
		noise ^= noise >> 7
		noise ^= noise << 17
		return int(noise % uint64(n))
	}
	uneven := func() int { return []int{3, 3, 3, 3, 4, 4, 5, next(32)}[next(8)] } // for Huffman
	var all []added
	fixed := func(kind model.Kind, n int, ms func(i int) int64, value func(i int) uint64, ttl func(i int) uint32) {
		c := &model.Columns{}
		for i := range n {
			c.AppendFixed(ms(i), value(i), ttl(i))
		}
		all = append(all, added{kind: kind, c: c})
	}
	regular := func(i int) int64 { return start + int64(i)*10_000 }
	forever := func(int) uint32 { return 0 }
	day := func(int) uint32 { return 86400 }
	v := 5000

	fixed(model.Double, 40, regular, func(int) uint64 { v += next(21) - 10; return mantissaBits(int64(v), 2) }, forever)
	fixed(model.Double, 40, regular, func(int) uint64 { return mantissaBits(425, 1) }, day)
	fixed(model.Double, 40, regular, func(i int) uint64 {
		if i%9 == 4 {
			return oddDoubles[i%len(oddDoubles)]
		}
		return mantissaBits(int64(i), 1)
	}, day)
	fixed(model.Double, 48, func(i int) int64 { return regular(i) + int64(next(21)) - 10 },
		func(int) uint64 { next(1); return math.Float64bits(float64(noise%(1<<52)) / (1 << 45) / 3) }, forever)
	fixed(model.Double, 5, regular, func(i int) uint64 { return oddDoubles[i] }, forever)
	fixed(model.Double, 3, regular, func(int) uint64 { return oddDoubles[0] }, forever)
	fixed(model.Long, 48, func(i int) int64 { return all[3].c.Times[i] }, func(i int) uint64 { return uint64(i % 17 * 100) }, forever)
	fixed(model.Long, 40, regular, func(i int) uint64 { return uint64(int64(i)*1_000_003 - 7) }, func(i int) uint32 { return uint32(i % 3 * 3600) })
	fixed(model.Long, 40, regular, func(i int) uint64 { return uint64(i*i*1000 + next(3)) }, forever)
	fixed(model.Long, 5, func(i int) int64 { return int64(i*i*i) - 3 }, func(i int) uint64 {
		return []uint64{1 << 63, 1<<63 - 1, 0, 1<<64 - 1, 1}[i]
	}, forever)
	fixed(model.Long, 2, func(i int) int64 { return []int64{math.MinInt64, math.MaxInt64}[i] }, func(i int) uint64 { return uint64(i) }, forever)
	fixed(model.Long, 300, regular, func(int) uint64 { return uint64(uneven()) }, forever)
	fixed(model.Double, 600, func(i int) int64 { return start + int64(i)*60_000 },
		func(int) uint64 { v += uneven() - 4; return mantissaBits(int64(v), 3) }, forever)

	texts := func(kind model.Kind, n int, value func(i int) string) {
		c := &model.Columns{}
		for i := range n {
			c.AppendBytes(regular(i), []byte(value(i)), 0)
		}
		all = append(all, added{kind: kind, c: c})
	}
	texts(model.String, 40, func(i int) string { return []string{"up", "down", ""}[i%7%3] })
	texts(model.String, 20, func(i int) string { return fmt.Sprintf("request %d of the day took long", i) })
	texts(model.Custom, 3, func(i int) string { return string([]byte{0, byte(i), 255}) })
	texts(model.Complex, 20, func(i int) string {
		return fmt.Sprintf("%c%c......%c.......", 0x3f, i, 0x40)
	})
	nulls := &model.Columns{}
	nulls.AppendNull(start+1, 0)
	all = append(all, added{kind: model.Null, c: nulls})
	return all
}
