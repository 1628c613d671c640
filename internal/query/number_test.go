package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"varve/internal/embedded"
	"varve/internal/model"
	"varve/internal/store"
)

// An entry is a sample of a number, as a double.
type entry struct {
	ms    int64
	value float64
}

// A numberWorld is what was put into a store, by the tag h. It knows nothing of blocks,
// kinds and statistics.
type numberWorld map[string]map[int64]float64

// entries are the samples of a range, in order.
func (w numberWorld) entries(host string, within model.TimeRange) (list []entry) {
	for _, ms := range slices.Sorted(maps.Keys(w[host])) {
		if within.StartMS <= ms && ms <= within.EndMS {
			list = append(list, entry{ms, w[host][ms]})
		}
	}
	return list
}

// Times and ends of ranges: most lie close together, on both sides of the epoch, and
// some at the ends of time.
func drawTime(rt *rapid.T, name string) int64 {
	if rapid.IntRange(0, 5).Draw(rt, name+" is extreme") == 0 {
		return rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, math.MinInt64 + 1000, math.MaxInt64 - 1000, math.MaxInt64 - 1, math.MaxInt64}).Draw(rt, name)
	}
	return rapid.Int64Range(-60, 60).Draw(rt, name)
}

func drawRange(rt *rapid.T) model.TimeRange {
	return model.TimeRange{StartMS: drawTime(rt, "start"), EndMS: drawTime(rt, "end")}
}

// fillNumbers puts longs, doubles and other values of some hosts into a store. Both
// types are at one time often, and written in either order.
func fillNumbers(rt *rapid.T, f *fixture, longs []int, doubles []float64) numberWorld {
	world := numberWorld{}
	for h := range rapid.IntRange(0, 5).Draw(rt, "hosts") {
		host := fmt.Sprint(h)
		tags, isDouble := model.MustTags("h", host), map[int64]bool{}
		world[host] = map[int64]float64{}
		for range rapid.IntRange(0, 50).Draw(rt, "samples") {
			ms := drawTime(rt, "time")
			switch rapid.IntRange(0, 7).Draw(rt, "type") {
			case 0, 1, 2:
				v := rapid.SampledFrom(longs).Draw(rt, "long")
				f.put("m", tags, sample{ms, v})
				if !isDouble[ms] {
					world[host][ms] = float64(v)
				}
			case 3, 4, 5, 6:
				v := rapid.SampledFrom(doubles).Draw(rt, "double")
				f.put("m", tags, sample{ms, v})
				world[host][ms], isDouble[ms] = v, true
			default:
				f.put("m", tags, sample{ms, "no number"}, sample{ms, nil})
			}
		}
	}
	f.put("other", model.MustTags("h", "0"), sample{0, 1})
	return world
}

var (
	someLongs   = []int{0, 1, -3, math.MaxInt64, math.MinInt64}
	someDoubles = []float64{0, math.Copysign(0, -1), 0.25, -7, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64}
)

// numbers returns all numbers of a metric by the tag h.
func (f *fixture) numbers(rt testing.TB, s *Session, metric string) map[string]Number {
	l := s.Lease()
	list, err := s.SelectNumbers(store.Selection{Metric: metric, Range: model.AllTime}, &l)
	if err != nil {
		rt.Fatal(err)
	}
	if !slices.IsSortedFunc(list, func(a, b Number) int { return a.Tags.Compare(b.Tags) }) {
		rt.Fatalf("numbers are out of order: %v", list)
	}
	found := map[string]Number{}
	for _, n := range list {
		host, _ := n.Tags.Get("h")
		if _, twice := found[host]; twice || n.Metric != metric {
			rt.Fatalf("%s of %s is there twice, or of another metric", host, n.Metric)
		}
		found[host] = n
	}
	return found
}

func (f *fixture) session(t testing.TB, ctx context.Context) *Session {
	s, err := f.Begin(ctx, Request{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A cursor over a number goes through the samples that were put, whatever steps and
// jumps it is moved by.
func TestNumberCursorAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t, DefaultConfig())
		f.store.BlockSamples = rapid.IntRange(1, 12).Draw(rt, "block")
		world := fillNumbers(rt, f, someLongs, someDoubles)
		s := f.session(t, t.Context())
		defer s.Close(nil)
		numbers := f.numbers(t, s, "m")
		for host := range world {
			if _, found := numbers[host]; found != (len(world[host]) > 0) {
				rt.Fatalf("host %s with %d samples: found %v", host, len(world[host]), found)
			}
		}
		for _, host := range slices.Sorted(maps.Keys(numbers)) {
			within := drawRange(rt)
			walk(rt, s, numbers[host], within, world.entries(host, within))
		}
	})
}

// walk moves a cursor to its end and holds it against the samples that there are.
func walk(rt *rapid.T, s *Session, n Number, within model.TimeRange, want []entry) {
	c := s.OpenNumber(n, within)
	defer c.Close()
	for at := range len(want) + 1 {
		ok, err := c.Next()
		if err != nil || ok != (at < len(want)) {
			rt.Fatalf("over %v, at %d of %v: %v, %v", within, at, want, ok, err)
		}
		if ok {
			if ms, v := c.At(); ms != want[at].ms || math.Float64bits(v) != math.Float64bits(want[at].value) {
				rt.Fatalf("over %v, at %d of %v: %d, %v", within, at, want, ms, v)
			}
		}
	}
	for range 2 {
		if ok, err := c.Next(); ok || err != nil {
			rt.Fatalf("after the end: %v, %v", ok, err)
		}
	}
}

// Several cursors over one number do not know each other.
func TestCursorsOfOneNumber(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	f.put("m", model.MustTags("h", "a"), sample{1, 1}, sample{2, 2.5}, sample{3, 3})
	s := f.session(t, t.Context())
	defer s.Close(nil)
	n := f.numbers(t, s, "m")["a"]
	all, late := s.OpenNumber(n, model.AllTime), s.OpenNumber(n, model.TimeRange{StartMS: 2, EndMS: 3})
	defer all.Close()
	defer late.Close()
	if ok, err := all.Next(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for i, want := range []entry{{2, 2.5}, {3, 3}} {
		for _, c := range []*NumberCursor{all, late} {
			if ok, err := c.Next(); !ok || err != nil {
				t.Fatal(i, ok, err)
			}
			if ms, v := c.At(); ms != want.ms || v != want.value {
				t.Errorf("%d: %d, %v", i, ms, v)
			}
		}
	}
}

// The samples of a number come from the embedded store as from the reference store.
func TestNumbersOfTheEmbeddedStore(t *testing.T) {
	e, f := openEmbedded(t), newFixture(t, DefaultConfig())
	world := numberWorld{"a": {}}
	var b store.Batch
	b.Reset(e.Epoch())
	for _, typ := range []model.Type{model.TypeLong, model.TypeDouble} {
		ref, err := e.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("h", "a"), Type: typ})
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(5000) {
			ms := i * 1000 * 3
			if typ == model.TypeDouble {
				ms = i * 1000 * 2
				b.AddDouble(ref, ms, float64(i)/2, 0)
				world["a"][ms] = float64(i) / 2
				continue
			}
			b.AddLong(ref, ms, i, 0)
			world["a"][ms] = float64(i)
		}
	}
	if err := e.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	on := fixtureOver(t, e, DefaultConfig())
	for _, place := range []string{"head", "files"} {
		t.Run(place, rapid.MakeCheck(func(rt *rapid.T) {
			s := on.session(t, t.Context())
			defer s.Close(nil)
			within := model.TimeRange{StartMS: rapid.Int64Range(-1000, 12_000_000).Draw(rt, "start"), EndMS: rapid.Int64Range(-1000, 16_000_000).Draw(rt, "end")}
			want, c := world.entries("a", within), s.OpenNumber(f.numbersOf(rt, s), within)
			defer c.Close()
			for at := 0; ; at++ {
				ok, err := c.Next()
				if err != nil || ok != (at < len(want)) {
					rt.Fatalf("%d of %d: %v, %v", at, len(want), ok, err)
				}
				if !ok {
					return
				}
				if ms, v := c.At(); ms != want[at].ms || v != want[at].value {
					rt.Fatalf("%d of %d: %d %v, want %v", at, len(want), ms, v, want[at])
				}
			}
		}))
		if err := e.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fixture) numbersOf(rt *rapid.T, s *Session) Number {
	l := s.Lease()
	list, err := s.SelectNumbers(store.Selection{Metric: "m", Range: model.AllTime}, &l)
	if err != nil || len(list) != 1 {
		rt.Fatalf("%v, %v", list, err)
	}
	return list[0]
}

func openEmbedded(t testing.TB) *embedded.Store {
	s, err := embedded.Open(vfs.NewMem(), "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The end of a session ends its cursors, and what they read counts.
func TestNumbersAreBounded(t *testing.T) {
	config := DefaultConfig()
	config.MaxSamples, config.MaxSeries = 100, 3
	f := newFixture(t, config)
	f.store.BlockSamples = 10
	for i := range 200 {
		f.put("m", model.MustTags("h", "a"), sample{int64(i), i}, sample{int64(i), 0.5})
	}
	for i := range 4 {
		f.put("many", model.MustTags("h", fmt.Sprint(i)), sample{1, 1})
	}
	var limit *store.LimitError
	s := f.session(t, t.Context())
	c := s.OpenNumber(f.numbers(t, s, "m")["a"], model.AllTime)
	read, err := drainNumber(c)
	if !errors.As(err, &limit) || limit.Limit != "query.max_samples" || read > 100 {
		t.Errorf("%d samples, %v", read, err)
	}
	if ok, err := c.Next(); ok || err != nil {
		t.Errorf("after an error: %v, %v", ok, err)
	}
	c.Close()
	l := s.Lease()
	if _, err := s.SelectNumbers(store.Selection{Metric: "many", Range: model.AllTime}, &l); !errors.As(err, &limit) || limit.Limit != "query.max_series" {
		t.Errorf("four series: %v", err)
	}
	s.Close(nil)

	ctx, cancel := context.WithCancel(t.Context())
	s = f.session(t, ctx)
	defer s.Close(nil)
	c = s.OpenNumber(f.numbers(t, s, "m")["a"], model.AllTime)
	defer c.Close()
	if ok, err := c.Next(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	cancel()
	if read, err := drainNumber(c); !errors.Is(err, context.Canceled) || read > 10 {
		t.Errorf("%d samples after the end, %v", read, err)
	}
}

func drainNumber(c *NumberCursor) (n int, err error) {
	for {
		ok, err := c.Next()
		if !ok || err != nil {
			return n, err
		}
		n++
	}
}
