package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"varve/internal/embedded"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/work"
)

// foldAll folds numbers side by side, and keeps the columns of each.
func foldAll(s *Session, numbers []Number, g Grid, needs model.StatSet, l *Lease) ([]Columns, error) {
	all := make([]Columns, len(numbers))
	err := s.Parallel(len(numbers), "fold series", func(i int) (bool, error) {
		c, err := s.GridFold(l).Fold(numbers[i], g, needs)
		all[i] = c
		return true, err
	})
	return all, s.Cause(err)
}

// naive aggregates samples one by one, in order. Sums are exact.
func naive(samples []entry, g Grid, needs model.StatSet) (c Columns) {
	cells := map[int][]float64{}
	for _, e := range samples {
		at := new(big.Int).Sub(big.NewInt(e.ms), big.NewInt(g.StartMS))
		if at.Sign() < 0 {
			continue
		}
		if at.Div(at, big.NewInt(g.StepMS)); at.IsInt64() && at.Int64() < int64(g.N) {
			cells[int(at.Int64())] = append(cells[int(at.Int64())], e.value)
		}
	}
	if len(cells) == 0 {
		return c
	}
	column := func(stat model.StatSet, f func(values []float64) float64) []float64 {
		if needs&stat == 0 {
			return nil
		}
		all := make([]float64, g.N)
		for i, values := range cells {
			all[i] = f(values)
		}
		return all
	}
	c.Count = make([]int64, g.N)
	for i, values := range cells {
		c.Count[i] = int64(len(values))
	}
	c.Sum = column(model.StatSum, exactSum)
	c.Min = column(model.StatMin, func(v []float64) float64 {
		least := v[0]
		for _, x := range v {
			least = min(least, x)
		}
		return least
	})
	c.Max = column(model.StatMax, func(v []float64) float64 {
		most := v[0]
		for _, x := range v {
			most = max(most, x)
		}
		return most
	})
	c.First = column(model.StatFirst, func(v []float64) float64 { return v[0] })
	c.Last = column(model.StatLast, func(v []float64) float64 { return v[len(v)-1] })
	return c
}

func exactSum(values []float64) float64 {
	sum, infinite := new(big.Float).SetPrec(4000), 0.0
	for _, v := range values {
		if v-v != 0 { // NaN or infinite
			infinite += v
			continue
		}
		sum.Add(sum, new(big.Float).SetFloat64(v))
	}
	if infinite != 0 { // or NaN
		return infinite
	}
	f, _ := sum.Float64()
	return f
}

// roundings is how far a sum of the spans may be off: it was added in another order.
func roundings(samples []entry, g Grid) []float64 {
	for i := range samples {
		samples[i].value = min(math.Abs(samples[i].value), math.MaxFloat64/float64(len(samples)))
	}
	off := naive(samples, g, model.StatSum).Sum
	for i := range off {
		off[i] *= 1e-12
	}
	return off
}

// sameAsNaive compares all but sums bit by bit. A sum of zeros has no sign to rely on.
func sameAsNaive(got Columns, samples []entry, g Grid, needs model.StatSet) error {
	want := naive(samples, g, needs)
	if !slices.Equal(got.Count, want.Count) {
		return fmt.Errorf("count %v, want %v", got.Count, want.Count)
	}
	for name, pair := range map[string][2][]float64{
		"min": {got.Min, want.Min}, "max": {got.Max, want.Max}, "first": {got.First, want.First}, "last": {got.Last, want.Last},
	} {
		same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b }
		if !slices.EqualFunc(pair[0], pair[1], same) {
			return fmt.Errorf("%s %v, want %v", name, pair[0], pair[1])
		}
	}
	off := roundings(samples, g)
	for i, sum := range want.Sum {
		if got := got.Sum[i]; got != sum && !(got != got && sum != sum) && !(math.Abs(got-sum) <= off[i]) {
			return fmt.Errorf("sum of span %d is %v, want %v", i, got, sum)
		}
	}
	if (got.Sum == nil) != (want.Sum == nil) {
		return fmt.Errorf("sum %v, want %v", got.Sum, want.Sum)
	}
	return nil
}

func drawGrid(rt *rapid.T) Grid {
	return Grid{
		StartMS: drawTime(rt, "grid start"),
		StepMS:  rapid.SampledFrom([]int64{1, 2, 7, 10, 1000, math.MaxInt64 / 3, math.MaxInt64 - 1, math.MaxInt64}).Draw(rt, "step"),
		N:       rapid.IntRange(0, 130).Draw(rt, "n"),
	}
}

// A fold gives what the raw samples give, whatever is asked for, whether statistics
// serve or not, and for numbers of two types.
func TestFoldAgainstModel(t *testing.T) {
	exact := func(n int) (longs []int, doubles []float64) {
		for i := -n; i <= n; i++ {
			longs, doubles = append(longs, i), append(doubles, float64(i)/4)
		}
		return longs, doubles
	}
	smallLongs, quarters := exact(20)
	sets := []struct {
		longs   []int
		doubles []float64
	}{
		{smallLongs, quarters},
		{someLongs, someDoubles},
		{[]int{0}, []float64{0, math.Copysign(0, -1), 0x1p1023, -0x1p1023}}, // two of which overflow
	}
	rapid.Check(t, func(rt *rapid.T) {
		config := DefaultConfig()
		config.Workers = rapid.IntRange(1, 4).Draw(rt, "workers")
		f := newFixture(t, config)
		f.store.BlockSamples = rapid.IntRange(1, 20).Draw(rt, "block")
		set := rapid.SampledFrom(sets).Draw(rt, "values")
		world := fillNumbers(rt, f, set.longs, set.doubles)
		s := f.session(t, t.Context())
		defer s.Close(nil)
		found := f.numbers(t, s, "m")
		hosts := slices.Sorted(maps.Keys(found))
		var numbers []Number
		for _, host := range hosts {
			numbers = append(numbers, found[host])
		}
		g, needs := drawGrid(rt), model.StatSet(rapid.IntRange(0, int(model.AllStats)).Draw(rt, "needs"))
		l := s.Lease()
		all, err := foldAll(s, numbers, g, needs, &l)
		if err != nil || len(all) != len(numbers) {
			rt.Fatalf("%d of %d: %v", len(all), len(numbers), err)
		}
		for i, host := range hosts {
			if err := sameAsNaive(all[i], world.entries(host, model.AllTime), g, needs); err != nil {
				rt.Fatalf("%v of %s: %v", g, host, err)
			}
		}
		l.Release()
	})
}

// Grids that reach to the ends of time, or beyond, over samples there.
func TestFoldAtTheEndsOfTime(t *testing.T) {
	const first, last = math.MinInt64, math.MaxInt64
	f := newFixture(t, DefaultConfig())
	world := numberWorld{"long": {}, "both": {}, "huge": {}}
	for i, ms := range []int64{first, first + 1, first + 2000, -1, 0, 1, last - 2000, last - 1, last} {
		f.put("m", model.MustTags("h", "long"), sample{ms, i})
		f.put("m", model.MustTags("h", "both"), sample{ms, i})
		f.put("m", model.MustTags("h", "huge"), sample{ms, 0x1p1023}) // two of which have no sum, so that samples are read
		world["long"][ms], world["both"][ms], world["huge"][ms] = float64(i), float64(i), 0x1p1023
	}
	f.put("m", model.MustTags("h", "both"), sample{last, 0.5}, sample{first, 2.5})
	world["both"][last], world["both"][first] = 0.5, 2.5
	s := f.session(t, t.Context())
	defer s.Close(nil)
	for host, n := range f.numbers(t, s, "m") {
		for _, start := range []int64{first, first + 1, -1, 0, last - 2000, last - 1999, last - 1, last} {
			for _, step := range []int64{1, 2, 1000, 1999, 2000, 2001, last / 2, last - 1, last} {
				for _, count := range []int{1, 2, 3, 5000} {
					for _, needs := range []model.StatSet{model.AllStats, model.StatLast} { // the last value alone is found in another way
						g, l := Grid{start, step, count}, s.Lease()
						all, err := foldAll(s, []Number{n}, g, needs, &l)
						if err != nil {
							t.Fatal(err)
						}
						if err := sameAsNaive(all[0], world.entries(host, model.AllTime), g, needs); err != nil {
							t.Errorf("%v of %s: %v", g, host, err)
						}
						l.Release()
					}
				}
			}
		}
	}
}

// Statistics of the embedded store, of its head and of its files, give what its samples
// give.
func TestFoldOfTheEmbeddedStore(t *testing.T) {
	e := openEmbedded(t)
	on := fixtureOver(t, e, DefaultConfig())
	rng := rand.New(rand.NewPCG(3, 5))
	world := numberWorld{}
	var b store.Batch
	b.Reset(e.Epoch())
	for h := range 12 {
		host := fmt.Sprint(h)
		world[host] = map[int64]float64{}
		for _, typ := range []model.Type{model.TypeLong, model.TypeDouble} {
			if h%3 == 0 && typ == model.TypeLong || h%3 == 1 && typ == model.TypeDouble {
				continue // every third host has both
			}
			ref, err := e.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("h", host), Type: typ})
			if err != nil {
				t.Fatal(err)
			}
			ms := int64(-2_000_000)
			for range 3000 {
				ms += rng.Int64N(2000) + 1
				v := float64(rng.IntN(2000)-1000) / 4
				if typ == model.TypeLong {
					v = float64(rng.IntN(2000) - 1000)
					b.AddLong(ref, ms, int64(v), 0)
				} else {
					if h == 3 {
						v *= 0x1p1015 // which overflows
					}
					b.AddDouble(ref, ms, v, 0)
				}
				world[host][ms] = v
			}
		}
	}
	if err := e.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"head", "files"} {
		for _, g := range []Grid{
			{-2_000_000, 60_000, 100}, {-1_234_567, 7, 1000}, {-3_000_000, 10_000_000, 1}, {5, 1000, 900}, {math.MinInt64, math.MaxInt64, 3}, {9_000_000, 10, 10},
		} {
			s := on.session(t, t.Context())
			found := on.numbers(t, s, "m")
			for host, n := range found {
				l := s.Lease()
				all, err := foldAll(s, []Number{n}, g, model.AllStats, &l)
				if err != nil {
					t.Fatal(err)
				}
				if err := sameAsNaive(all[0], world.entries(host, model.AllTime), g, model.AllStats); err != nil {
					t.Errorf("%s, %v of %s: %v", place, g, host, err)
				}
			}
			s.Close(nil)
		}
		before := counted(t, on.metrics.summarized)
		if before == 0 {
			t.Errorf("%s: no statistics were used", place)
		}
		if err := e.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What a fold holds and reads is bounded, and given back.
func TestFoldIsBounded(t *testing.T) {
	config := DefaultConfig()
	config.MaxMemory, config.MaxSamples = units.MiB, 1000
	f := newFixture(t, config)
	for h := range 20 {
		for i := range 100 {
			f.put("m", model.MustTags("h", fmt.Sprint(h)), sample{int64(i), i})
		}
	}
	s := f.session(t, t.Context())
	defer s.Close(nil)
	l := s.Lease()
	f.put("both", model.MustTags("h", "x"), sample{1, 1}, sample{2, 2.5})
	numbers, err := s.SelectNumbers(store.Selection{Metric: "m", Range: model.AllTime}, &l)
	if err != nil {
		t.Fatal(err)
	}
	both, err := s.SelectNumbers(store.Selection{Metric: "both", Range: model.AllTime}, &l)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		limit   string
		numbers []Number
		grid    Grid
		needs   model.StatSet
	}{
		{"query.max_samples", numbers, Grid{0, 10, 10}, model.AllStats},
		{"query.max_memory", numbers[:5], Grid{0, 1, 10_000}, model.AllStats},
		{"query.max_memory", numbers[:1], Grid{0, 1, 200_000}, 0},
		{"query.max_memory", numbers[:1], Grid{0, 1, math.MaxInt}, model.StatMin},
		{"query.max_memory", numbers[:1], Grid{0, 1, math.MaxInt}, model.AllStats},
		{"query.max_memory", both, Grid{0, 1, math.MaxInt}, model.StatMin},
		{"query.max_memory", both, Grid{0, 1, 100_000}, model.AllStats},
	} {
		s.Reread(0)
		held := s.Lease()
		_, err := foldAll(s, tc.numbers, tc.grid, tc.needs, &held)
		var limit *store.LimitError
		if !errors.As(err, &limit) || limit.Limit != tc.limit || limit.Need <= limit.Max {
			t.Errorf("%v of %d: %v, want %s", tc.grid, len(tc.numbers), err, tc.limit)
		}
		held.Release()
	}
	l.Release()
	if used := s.budget.used.Load(); used != 0 {
		t.Errorf("%d bytes were not given back", used)
	}
	s.Reread(0)
	for _, g := range []Grid{{0, 0, 1}, {0, -5, 1}, {0, 1, -1}} {
		var input *store.InputError
		if _, err := foldAll(s, numbers, g, 0, &l); !errors.As(err, &input) {
			t.Errorf("%v: %v", g, err)
		}
	}
	if all, err := foldAll(s, numbers[:1], Grid{0, 1, 0}, model.AllStats, &l); err != nil || len(all) != 1 || all[0].Count != nil {
		t.Errorf("no spans: %v, %v", all, err)
	}
}

// faulty is a store with a fault of ours in its cursors.
type faulty struct{ store.Viewer }

type faultyView struct{ store.View }

type faultyCursor struct{ store.Cursor }

func (f faulty) View(ctx context.Context) (store.View, error) {
	v, err := f.Viewer.View(ctx)
	return faultyView{v}, err
}

func (v faultyView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	return faultyCursor{v.View.Read(ctx, s, o)}
}

func (faultyCursor) Next() (*store.Block, error) { panic("an invariant is broken") }

// A fold ends with its session, and a fault of a reader is its error.
func TestFoldEnds(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	f.store.BlockSamples = 1
	for i := range 100 {
		f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{1, 1}, sample{2, 2.5})
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := f.session(t, ctx)
	defer s.Close(nil)
	l := s.Lease()
	numbers, err := s.SelectNumbers(store.Selection{Metric: "m", Range: model.AllTime}, &l)
	if err != nil {
		t.Fatal(err)
	}
	f.Cancel(s.id)
	if _, err := foldAll(s, numbers, Grid{0, 1, 10}, model.AllStats, &l); !errors.Is(err, ErrCancelled) {
		t.Errorf("cancelled: %v", err)
	}
	cancel()

	var fault *work.PanicError
	broken := fixtureOver(t, faulty{f.store}, DefaultConfig())
	s = broken.session(t, t.Context())
	l = s.Lease()
	if _, err := foldAll(s, numbers, Grid{0, 1, 10}, model.AllStats, &l); !errors.As(err, &fault) {
		t.Errorf("a reader that panics: %v", err)
	}
	s.Close(nil)
	if n := len(broken.Running()) + broken.slots.inUse(); n != 0 {
		t.Errorf("%d slots are still taken", n)
	}
}

// BenchmarkFold aggregates 100 series in files by a grid: a sample a second over two
// days, and of a part of them each sample by itself.
func BenchmarkFold(b *testing.B) {
	e, err := embedded.Open(vfs.NewMem(), "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	const series, seconds = 100, 172_800
	rng := rand.New(rand.NewPCG(1, 2))
	var batch store.Batch
	for i := range series {
		ref, err := e.Create(context.Background(), model.Series{Metric: "m", Tags: model.MustTags("n", fmt.Sprint(i)), Type: model.TypeDouble})
		if err != nil {
			b.Fatal(err)
		}
		batch.Reset(e.Epoch())
		for at := range int64(seconds) {
			batch.AddDouble(ref, at*1000, float64(rng.IntN(10_000))/100, 0)
		}
		if err := e.Append(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := e.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	on := fixtureOver(b, e, DefaultConfig())
	for _, c := range []struct {
		name  string
		grid  Grid
		needs model.StatSet
	}{
		{"sum=1m", Grid{0, 60_000, seconds / 60}, model.StatSum},
		{"max=1m", Grid{0, 60_000, seconds / 60}, model.StatMax},
		{"sum=1h", Grid{0, 3_600_000, seconds / 3600}, model.StatSum},
		{"last=1s", Grid{0, 1000, seconds / 8}, model.StatLast},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			samples := int64(0)
			for b.Loop() {
				s := on.session(b, context.Background())
				l := s.Lease()
				numbers, err := s.SelectNumbers(store.Selection{Metric: "m", Range: c.grid.Range()}, &l)
				if err == nil {
					_, err = foldAll(s, numbers, c.grid, c.needs, &l)
				}
				if err != nil {
					b.Fatal(err)
				}
				samples = s.Samples()
				s.Close(nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(samples), "ns/sample")
		})
	}
}
