package embedded

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/store"
)

// oddValues are numbers that are hard to add up, to compare or to keep as doubles.
var oddValues = []float64{
	0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1, -1, 0.1, -0.7, math.Pi,
	math.MaxFloat64, -math.MaxFloat64, 5e-324, -5e-324, 2.3e-308, 1 << 53, 1<<53 + 2, -(1 << 63), 1e-300, 1e15,
}

// oddLongs likewise.
var oddLongs = []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1<<53 + 1, -(1<<53 + 1), 1 << 62, 99}

// A valueTest compares all that a store has of two series, window by window, with the
// last value that was written to each time.
type valueTest struct {
	*foldTest
	random *rand.Rand
	want   map[model.Type]map[int64]float64
}

// put writes values at times, and replaces existing ones.
func (f *valueTest) put(kind model.Type, times ...int64) {
	f.Helper()
	var b store.Batch
	b.Reset(f.Epoch())
	ref, err := f.Create(f.Context(), model.Series{Metric: "thin.odd", Type: kind})
	f.must(f.T, err)
	for _, ms := range times {
		if kind == model.TypeLong {
			v := oddLongs[f.random.IntN(len(oddLongs))]
			b.AddLong(ref, ms, v, 0)
			f.want[kind][ms] = float64(v)
			continue
		}
		v := oddValues[f.random.IntN(len(oddValues))]
		if f.random.IntN(2) > 0 {
			v = math.Ldexp(f.random.NormFloat64(), f.random.IntN(100)-50)
		}
		b.AddDouble(ref, ms, v, 0)
		f.want[kind][ms] = v
	}
	f.must(f.T, f.Append(f.Context(), &b))
}

// compare compares each window that has not outlived the policy.
func (f *valueTest) compare(when string) {
	f.Helper()
	oldest := f.policyNamed("thin.odd").Rule.Stages.OldestMS(f.nowMS.Load())
	for kind, samples := range f.want {
		got, want := map[int64]model.Aggregate{}, map[int64]model.Aggregate{}
		finite := map[int64]bool{}
		add := func(to map[int64]model.Aggregate, ms int64, a model.Aggregate) {
			if at := model.Floor(ms, foldWindow); at > oldest {
				sum := to[at]
				sum.Merge(a)
				to[at] = sum
			}
		}
		all := f.whole("thin.odd " + string(kind))
		for i, ms := range all.times {
			add(got, ms, f.one(ms, all.values[i]))
		}
		for _, b := range all.buckets {
			add(got, b.StartMS, b.Aggregate)
		}
		lists := map[int64][]float64{}
		for ms, v := range samples {
			add(want, ms, f.one(ms, v))
			at := model.Floor(ms, foldWindow)
			lists[at] = append(lists[at], v)
			finite[at] = (finite[at] || len(lists[at]) == 1) && math.Abs(v) < 1e300
		}
		for at, w := range want {
			g := got[at]
			if w.Count == 0 && g.Count == 0 {
				continue
			}
			w.Sketch = quantile.Of(lists[at]...)
			bits := func(a model.Aggregate) string {
				return fmt.Sprintf("%d %x %x %x %d %x", a.Count, math.Float64bits(a.Min), math.Float64bits(a.Max), math.Float64bits(a.Last), a.LastMS, string(a.Sketch))
			}
			if bits(g) != bits(w) {
				f.Fatalf("%s: %s from %d on:\n%s, want\n%s", when, kind, at, bits(g), bits(w))
			}
			most := max(math.Abs(w.Min), math.Abs(w.Max)) * float64(w.Count)
			if finite[at] && !(math.Abs(g.Sum-w.Sum) <= most*1e-12) {
				f.Fatalf("%s: %s from %d on: sum %v, want %v", when, kind, at, g.Sum, w.Sum)
			}
		}
	}
}

// TestFoldsOfOddValues writes numbers at the ends of what there is, over others too, and
// folds them: buckets have what a computation from the samples has, bit for bit.
func TestFoldsOfOddValues(t *testing.T) {
	runs := uint64(4)
	if testing.Short() {
		runs = 2
	}
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 3))
			f := &valueTest{newSketchTest(t, "10s:1h,60s:6h,10m:2d", withSketches), random, map[model.Type]map[int64]float64{model.TypeDouble: {}, model.TypeLong: {}}}
			kinds := []model.Type{model.TypeDouble, model.TypeLong}
			for step := range 100 {
				now := f.nowMS.Load()
				kind := kinds[random.IntN(2)]
				switch n := random.IntN(12); {
				case n < 4:
					var times []int64
					for ms := now - 600_000; ms < now; ms += 10_000 {
						times = append(times, ms/10_000*10_000)
					}
					f.put(kind, times...)
					f.nowMS.Add(random.Int64N(1_200_000))
				case n < 6: // over samples that no fold has seen: some are in files, some in memory
					var times []int64
					for range random.IntN(50) {
						if ms := (now - random.Int64N(2_000_000)) / 10_000 * 10_000; ms > 0 {
							times = append(times, ms)
						}
					}
					f.put(kind, times...)
				case n < 8:
					f.must(t, f.checkpoint())
				case n < 10:
					f.foldAll()
				case n < 11:
					f.must(t, f.Compact(t.Context()))
				default:
					f.restart(random)
				}
				f.compare(fmt.Sprint("step ", step))
			}
			f.nowMS.Add(7 * 3_600_000)
			f.must(t, f.Compact(t.Context()))
			f.foldAll()
			f.compare("at the end")
		})
	}
}
