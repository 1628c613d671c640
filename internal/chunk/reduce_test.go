package chunk

import (
	"math"
	"math/rand/v2"
	"testing"

	"varve/internal/model"
)

// spans returns a function that cuts time at every step, and one that does not cut.
func spans(step int64) func(int64) int64 {
	if step <= 0 {
		return func(int64) int64 { return math.MaxInt64 }
	}
	return func(ms int64) int64 {
		if within := uint64(step) - 1 - (uint64(ms)-1<<63)%uint64(step); within < uint64(math.MaxInt64)-uint64(ms) || ms < 0 {
			return ms + int64(within)
		}
		return math.MaxInt64
	}
}

// runsOf is what Reduce should say of c, by a look at each sample.
func runsOf(kind model.Kind, c *model.Columns, cut *Cut) (runs []model.Stats) {
	var s *model.Stats
	final := int64(0)
	for i, ms := range c.Times {
		if !cut.Range.Contains(ms) || kind == model.Double && c.Values[i] == model.StaleMarker {
			continue
		}
		v := model.Float(kind, c.Values[i])
		if s == nil || ms > final {
			final = cut.Final(ms)
			runs = append(runs, model.Stats{FirstMS: ms, First: c.Values[i], Min: v, Max: v})
			s = &runs[len(runs)-1]
		}
		s.Count++
		s.LastMS, s.Last = ms, c.Values[i]
		s.Min, s.Max, s.Sum = min(s.Min, v), max(s.Max, v), s.Sum+v
	}
	return runs
}

// requireRuns compares those statistics that are needed, bit for bit but for NaN.
func requireRuns(t *testing.T, got, want []model.Stats, needs model.StatSet) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d runs, want %d", len(got), len(want))
	}
	same := func(need model.StatSet, a, b float64) bool {
		return needs&need == 0 || a != a && b != b || math.Float64bits(a) == math.Float64bits(b)
	}
	for i, a := range got {
		b := want[i]
		if a.Count != b.Count || a.FirstMS != b.FirstMS || a.LastMS != b.LastMS ||
			needs&model.StatFirst != 0 && a.First != b.First || needs&model.StatLast != 0 && a.Last != b.Last ||
			!same(model.StatMin, a.Min, b.Min) || !same(model.StatMax, a.Max, b.Max) || !same(model.StatSum, a.Sum, b.Sum) {
			t.Fatalf("run %d, needs %05b: %+v, want %+v", i, needs, a, b)
		}
	}
}

// Reducing a chunk gives what its samples give, whatever the codec made of them,
// for any range, any cut and any choice of statistics.
func TestReduce(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	var d Decoder
	var b PageBuilder
	for turn := range 3000 {
		kind := []model.Kind{model.Long, model.Double}[turn%2]
		n := 1 + rng.IntN([]int{3, 40, 1200}[turn%3])
		c := randomColumns(rng, kind, n)
		c.TTLs = nil
		if kind == model.Double && rng.IntN(3) == 0 {
			for range 1 + rng.IntN(n) {
				c.Values[rng.IntN(n)] = model.StaleMarker
			}
		}
		first, last := c.Times[0], c.Times[n-1]
		cut := &Cut{Range: model.AllTime, Final: spans(0), Needs: model.StatSet(rng.IntN(int(model.AllStats) + 1))}
		if rng.IntN(3) > 0 {
			width := (uint64(last) - uint64(first)) / uint64(1+rng.IntN(50))
			cut.Final = spans(int64(min(width, math.MaxInt64-1)) + 1)
		}
		if rng.IntN(2) == 0 {
			cut.Range.StartMS = c.Times[rng.IntN(n)] + int64(rng.IntN(3)-1)
		}
		if rng.IntN(2) == 0 {
			cut.Range.EndMS = c.Times[rng.IntN(n)] + int64(rng.IntN(3)-1)
		}
		want := runsOf(kind, c, cut)
		level := Level(rng.IntN(2))

		got, ok, err := d.Reduce(Append(nil, kind, c, 0, n, level), kind, cut, nil)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		requireRuns(t, got, want, cut.Needs)

		b.Reset(level)
		b.Add(1, kind, c, 0, n)
		b.Add(2, kind, c, 0, n) // with the times of the first
		p, err := OpenPage(b.Finish(nil))
		if err != nil {
			t.Fatal(err)
		}
		var e Entry
		for it := p.Iter(); it.Next(&e); {
			if got, err = d.ReduceEntry(&e, cut, got[:0]); err != nil {
				t.Fatal(err)
			}
			requireRuns(t, got, want, cut.Needs)
		}
	}
}

// A chunk with times-to-live is for its reader to look at, sample by sample.
func TestReduceLeavesExpiring(t *testing.T) {
	var c model.Columns
	c.AppendFixed(1000, 1, 60)
	c.AppendFixed(2000, 2, 60)
	cut := &Cut{Range: model.AllTime, Final: spans(0), Needs: model.AllStats}
	got, ok, err := new(Decoder).Reduce(Append(nil, model.Long, &c, 0, 2, Fast), model.Long, cut, nil)
	if len(got) > 0 || ok || err != nil {
		t.Errorf("%v, %v, %v", got, ok, err)
	}
}

func TestReduceTruncated(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	c := randomColumns(rng, model.Double, 300)
	c.TTLs = nil
	whole := Append(nil, model.Double, c, 0, 300, Best)
	cut := &Cut{Range: model.AllTime, Final: spans(0), Needs: model.AllStats}
	for n := range whole {
		if got, _, err := new(Decoder).Reduce(whole[:n], model.Double, cut, nil); err == nil || len(got) > 0 {
			t.Fatalf("%d of %d bytes: %v, %v", n, len(whole), got, err)
		}
	}
}

// BenchmarkReduce takes maxima and sums of 60 samples each from chunks in a page.
func BenchmarkReduce(b *testing.B) {
	const n = 1024
	for _, shape := range []int{0, 1, 3} {
		var builder PageBuilder
		builder.Reset(Best)
		columns := benchColumns(shape, n, 0)
		for i := range model.SeriesNumber(16) {
			builder.Add(i, model.Double, columns[int(i)%len(columns)], 0, n)
		}
		p, err := OpenPage(builder.Finish(nil))
		if err != nil {
			b.Fatal(err)
		}
		for name, needs := range map[string]model.StatSet{"max": model.StatMax, "sum": model.StatSum, "count": 0} {
			b.Run(shapes[shape].name+"/"+name, func(b *testing.B) {
				var d Decoder
				var e Entry
				var runs []model.Stats
				cut := &Cut{Range: model.AllTime, Final: spans(600_000), Needs: needs}
				b.ReportAllocs()
				for range b.N {
					for it := p.Iter(); it.Next(&e); {
						if runs, err = d.ReduceEntry(&e, cut, runs[:0]); err != nil {
							b.Fatal(err)
						}
					}
				}
				report(b, 16*n, 0)
			})
		}
	}
}
