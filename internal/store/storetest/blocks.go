package storetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"varve/internal/model"
	"varve/internal/store"
)

// blockTests read series that are long enough to span many blocks and chunks.
var blockTests = []test{
	{"long-series", func(e *env) { longSeries(e, model.TypeLong) }},
	{"double-series", func(e *env) { longSeries(e, model.TypeDouble) }},
	{"string-series", func(e *env) { longSeries(e, model.TypeString) }},
	{"null-series", func(e *env) { longSeries(e, model.TypeNull) }},
	{"out-of-order", outOfOrder},
	{"overwrites-and-holes", overwritesAndHoles},
	{"random-bits", randomBits},
	{"long-strings", longStrings},
	{"many-rows", manyRows},
	{"wide-batch", wideBatch},
}

// steps returns n samples, 10 s apart from startMS on, of a series of type t.
func steps(t model.Type, startMS int64, n int) []readSample {
	out := make([]readSample, n)
	for i := range out {
		out[i].timeMS = startMS + int64(i)*10_000
		switch t {
		case model.TypeLong:
			out[i].value.bits = uint64(int64(i * i))
		case model.TypeDouble:
			out[i].value.bits = math.Float64bits(float64(i*37%1000) / 100)
		case model.TypeNull:
		default:
			out[i].value.data = fmt.Sprintf("value %d", i)
		}
	}
	return out
}

// put appends samples of s in batches of at most perBatch.
func (e *env) put(s model.Series, samples []readSample, perBatch int) {
	e.Helper()
	for part := range slices.Chunk(samples, perBatch) {
		e.putAll(scriptSamples(s, part))
	}
}

// putAll appends samples in one batch.
func (e *env) putAll(samples []scriptSample) {
	e.Helper()
	if err := e.append(context.Background(), samples); err != nil {
		e.Fatalf("append %d samples: %v", len(samples), err)
	}
}

func scriptSamples(s model.Series, samples []readSample) []scriptSample {
	out := make([]scriptSample, len(samples))
	for i, p := range samples {
		out[i] = scriptSample{series: s, timeMS: p.timeMS, value: p.value}
	}
	return out
}

// view opens a view that is closed when the test ends, or before.
func (e *env) view() store.View {
	e.Helper()
	v, err := e.s.View(context.Background())
	if err != nil {
		e.Fatalf("View: %v", err)
	}
	return v
}

// everyway reads s whole and in parts, in both directions, with limits and
// with statistics, and compares each with what want, ascending, says. when
// names the state of the store.
func (e *env) everyway(when string, s model.Series, want []readSample) {
	e.Helper()
	v := e.view()
	defer v.Close()
	n := len(want)
	ranges := []model.TimeRange{model.AllTime}
	for _, cut := range [][2]int{{0, n - 1}, {1, n - 2}, {n / 3, n / 2}, {n / 2, n / 2}, {n - 1, n - 1}} {
		from, to := want[max(cut[0], 0)].timeMS, want[max(cut[1], 0)].timeMS
		ranges = append(ranges, model.TimeRange{StartMS: from, EndMS: to},
			model.TimeRange{StartMS: from + 1, EndMS: to}, model.TimeRange{StartMS: from, EndMS: to - 1})
	}
	for i, r := range ranges {
		limits := []int{0, 2}
		if i == 0 {
			limits = []int{0, 1, 2, n / 2, n - 1, n, n + 1}
		}
		for _, limit := range limits {
			for _, desc := range []bool{false, true} {
				e.oneway(when, v, s, want, store.ReadOptions{Range: r, Limit: limit, Descending: desc})
			}
		}
	}
}

func (e *env) oneway(when string, v store.View, s model.Series, all []readSample, o store.ReadOptions) {
	e.Helper()
	ctx := context.Background()
	what := fmt.Sprintf("%s: read %s from %d to %d, limit %d, descending %v", when, s, o.Range.StartMS, o.Range.EndMS, o.Limit, o.Descending)
	want := expected(all, o)
	found, ok, err := findSeries(ctx, v, s, o.Range)
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
	if !ok {
		if len(want) > 0 {
			e.Fatalf("%s: not selected, but has %d samples", what, len(want))
		}
		return
	}
	got, err := readSamples(ctx, v, found, o)
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
	e.same(what, s, got, want)
	if o.Limit > 0 || !s.Type.Kind().Fixed() {
		return
	}
	for _, name := range []string{"all", "some", "none"} {
		needs := []model.StatSet{model.AllStats}
		if name == "some" { // which has runs of many samples and of one
			needs = append(needs, 0, model.StatSum, model.StatMin, model.StatMax, model.StatFirst, model.StatLast)
		}
		for _, needs := range needs {
			what := fmt.Sprintf("%s, summarize %s, needs %05b", what, name, needs)
			got, err := readSummarized(ctx, v, found, o, want, summarizers[name], needs)
			if err != nil {
				e.Fatalf("%s: %v", what, err)
			}
			e.same(what, s, got, want)
		}
	}
}

// expected is what a read with o must give of a series that holds all.
func expected(all []readSample, o store.ReadOptions) []readSample {
	var out []readSample
	for _, p := range all {
		if o.Range.Contains(p.timeMS) {
			out = append(out, p)
		}
	}
	if o.Descending {
		slices.Reverse(out)
	}
	if o.Limit > 0 && len(out) > o.Limit {
		out = out[:o.Limit]
	}
	return out
}

// same compares two lists of samples and shows the first difference.
func (e *env) same(what string, s model.Series, got, want []readSample) {
	e.Helper()
	text := func(list []readSample, i int) string {
		if i >= len(list) {
			return "the end"
		}
		v := valueText(s.Type.Kind(), list[i].value)
		if len(v) > 60 {
			v = v[:60] + "..."
		}
		return fmt.Sprintf("%d=%s", list[i].timeMS, v)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			e.Fatalf("%s: sample %d is %s, want %s (%d samples, want %d)", what, i, text(got, i), text(want, i), len(got), len(want))
		}
	}
}

// inEveryState checks want in the state the store is in, then flushed, merged,
// and opened again.
func (e *env) inEveryState(s model.Series, want []readSample) {
	e.Helper()
	e.everyway("as written", s, want)
	e.flush()
	e.everyway("flushed", s, want)
	e.merge()
	e.everyway("merged", s, want)
	e.crash()
	e.everyway("opened again", s, want)
}

func seriesA(t model.Type) model.Series {
	return model.Series{Metric: "load", Tags: model.MustTags("host", "a"), Type: t}
}

const someTimeMS = 1_500_000_000_000

func longSeries(e *env, t model.Type) {
	s := seriesA(t)
	samples := steps(t, someTimeMS, 3000)
	e.put(s, samples[:2000], 700)
	e.flush()
	e.put(s, samples[2000:], 50)
	e.inEveryState(s, samples)
}

// outOfOrder writes one series backwards, in shuffled batches, with flushes in
// between, so that blocks on disk overlap.
func outOfOrder(e *env) {
	s := seriesA(model.TypeDouble)
	samples := steps(s.Type, someTimeMS, 2000)
	shuffled := slices.Clone(samples)
	rng := rand.New(rand.NewPCG(1, 2))
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	e.put(s, shuffled[:900], 300)
	e.flush()
	slices.Reverse(shuffled[900:1500])
	e.put(s, shuffled[900:1500], 200)
	e.flush()
	e.put(s, shuffled[1500:], 10)
	e.inEveryState(s, samples)
}

// overwritesAndHoles replaces every seventh sample after a flush, and deletes
// two stretches.
func overwritesAndHoles(e *env) {
	s := seriesA(model.TypeLong)
	samples := steps(s.Type, someTimeMS, 2000)
	e.put(s, samples, 500)
	e.flush()
	var again []readSample
	for i := 0; i < len(samples); i += 7 {
		samples[i].value.bits = uint64(i + 1_000_000)
		again = append(again, samples[i])
	}
	e.put(s, again, len(again))
	for _, hole := range [][2]int{{1400, 1500}, {300, 800}} {
		d := store.Deletion{Metric: s.Metric, Range: model.TimeRange{StartMS: samples[hole[0]].timeMS, EndMS: samples[hole[1]-1].timeMS}}
		if err := e.s.Delete(context.Background(), d); err != nil {
			e.Fatalf("Delete: %v", err)
		}
		samples = slices.Delete(samples, hole[0], hole[1])
	}
	e.inEveryState(s, samples)
}

// randomBits stores words that no codec was made for.
func randomBits(e *env) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, t := range []model.Type{model.TypeLong, model.TypeDouble} {
		s := seriesA(t)
		samples := steps(t, someTimeMS, 1500)
		for i := range samples {
			samples[i].timeMS += rng.Int64N(10_000)
			samples[i].value.bits = rng.Uint64()
		}
		e.put(s, samples, 400)
		e.inEveryState(s, samples)
	}
}

// longStrings stores texts of up to 60,000 bytes, NUL among them.
func longStrings(e *env) {
	s := seriesA(model.TypeString)
	samples := steps(s.Type, someTimeMS, 40)
	most := 30_000
	if e.h.MaxText > 0 {
		most = min(most, e.h.MaxText/3) // a letter and a NUL
	}
	for i := range samples {
		samples[i].value.data = strings.Repeat(string(rune('a'+i%26))+"\x00", i*most/39)
	}
	e.put(s, samples, 16)
	e.inEveryState(s, samples)
}

// manyRows spreads a series over 60 rows on both sides of 1970.
func manyRows(e *env) {
	s := seriesA(model.TypeLong)
	samples := steps(s.Type, 0, 120)
	for i := range samples {
		samples[i].timeMS = int64(i-60)*907_200_000 + int64(i%3) - 1 // half a row, -1 to +1 ms
	}
	e.put(s, samples, 50)
	e.inEveryState(s, samples)
}

// wideBatch appends 20,000 samples of 200 series in one batch.
func wideBatch(e *env) {
	var batch []scriptSample
	samples := steps(model.TypeDouble, someTimeMS, 100)
	var all []model.Series
	for i := range 200 {
		all = append(all, model.Series{
			Metric: "wide", Type: model.TypeDouble,
			Tags: model.MustTags("host", fmt.Sprintf("h%03d", i)),
		})
	}
	for _, p := range samples {
		for _, s := range all {
			batch = append(batch, scriptSample{series: s, timeMS: p.timeMS, value: p.value})
		}
	}
	e.putAll(batch)
	check := func(when string) {
		v := e.view()
		defer v.Close()
		for _, s := range all {
			e.oneway(when, v, s, samples, store.ReadOptions{Range: model.AllTime})
		}
	}
	check("as written")
	e.merge()
	check("merged")
	e.reopen()
	check("opened again")
}
