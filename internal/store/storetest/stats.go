package storetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"varve/internal/model"
	"varve/internal/store"
)

// statsTests compare statistics with what the samples say.
var statsTests = []test{
	{"doubles", statsOfDoubles},
	{"longs-beyond-2-to-53", statsOfLongs},
	{"infinities-and-zeros", statsOfOddDoubles},
	{"zeros-of-both-signs", statsOfZeros},
	{"nan", statsOfNaN},
	{"staleness", staleness},
	{"limit-and-no-function", statsUnasked},
}

func statsOfDoubles(e *env) {
	s := seriesA(model.TypeDouble)
	samples := steps(s.Type, someTimeMS, 4000)
	rng := rand.New(rand.NewPCG(5, 6))
	walk := 100.0
	for i := range samples {
		walk += math.Round(rng.NormFloat64()*100) / 100
		samples[i].value.bits = math.Float64bits(walk)
	}
	e.put(s, samples, 1000)
	e.inEveryState(s, samples)
}

func statsOfLongs(e *env) {
	s := seriesA(model.TypeLong)
	samples := steps(s.Type, someTimeMS, 1000)
	for i := range samples {
		samples[i].value.bits = uint64(math.MaxInt64 - int64(i)*3)
		if i%5 == 0 {
			samples[i].value.bits = uint64(math.MinInt64 + int64(i))
		}
	}
	e.put(s, samples, 1000)
	e.inEveryState(s, samples)
}

func statsOfOddDoubles(e *env) {
	s := seriesA(model.TypeDouble)
	samples := steps(s.Type, someTimeMS, 1000)
	odd := []float64{math.Inf(1), math.Copysign(0, -1), 0, 5e-324, 1e300}
	for i := range samples {
		samples[i].value.bits = math.Float64bits(odd[i/100%len(odd)])
	}
	e.put(s, samples, 1000)
	e.inEveryState(s, samples)
}

// statsOfZeros: -0 is less than 0, whichever comes first, and beside numbers that
// are no decimals, too.
func statsOfZeros(e *env) {
	zeros := []float64{0, math.Copysign(0, -1)}
	written := map[string][]readSample{}
	all := []model.Series{}
	for i, beside := range [][]float64{nil, {1.0 / 3}, {-1.0 / 3}} {
		for turn := range 2 {
			values := append(slices.Clone(beside), zeros[turn], zeros[1-turn])
			s := seriesA(model.TypeDouble)
			s.Metric = fmt.Sprint(s.Metric, i, turn)
			samples := steps(s.Type, someTimeMS, 300)
			for k := range samples {
				samples[k].value.bits = math.Float64bits(values[k/60%len(values)])
			}
			e.put(s, samples, 300)
			written[s.Metric] = samples
			all = append(all, s)
		}
	}
	for _, state := range []struct {
		name  string
		reach func()
	}{{"as written", func() {}}, {"flushed", e.flush}, {"merged", e.merge}} {
		state.reach()
		for _, s := range all {
			e.everyway(state.name, s, written[s.Metric])
		}
	}
}

// statsOfNaN: of a run with a NaN, min, max and sum are NaN, as an aggregator
// that looks at each sample would say; a store may also not summarize it.
func statsOfNaN(e *env) {
	s := seriesA(model.TypeDouble)
	samples := steps(s.Type, someTimeMS, 1000)
	for i := range samples {
		if i%300 == 7 || i > 900 {
			samples[i].value.bits = math.Float64bits(math.NaN()) + uint64(i%3)
		}
	}
	e.put(s, samples, 1000)
	e.inEveryState(s, samples)
}

// staleness: markers are stored as they are, shown where they are asked for, and
// otherwise neither samples nor in statistics. Some take the place of a sample, and some
// samples that of a marker.
func staleness(e *env) {
	s := seriesA(model.TypeDouble)
	all := steps(s.Type, someTimeMS, 1000)
	var first, values []readSample
	for i := range all {
		other := all[i]
		all[i].value.bits = math.Float64bits(float64(i) / 3) // no decimals
		if i < 500 {
			all[i].value.bits = math.Float64bits(float64(i) / 4)
		}
		if other = all[i]; i%9 == 2 {
			other.value.bits = model.StaleMarker
		}
		if i%300 == 7 || i%100 < 3 || i >= 800 && i < 910 {
			all[i].value.bits = model.StaleMarker
		} else {
			values = append(values, all[i])
		}
		if i%11 < 2 || i > 900 {
			first = append(first, other)
		}
	}
	e.put(s, first, 100)
	e.flush()
	e.put(s, all, 700)
	e.inEveryState(s, values)
	v := e.view()
	defer v.Close()
	for _, descending := range []bool{false, true} {
		found, _, err := findSeries(context.Background(), v, s, model.AllTime)
		if err != nil {
			e.Fatal(err)
		}
		o := store.ReadOptions{Range: model.AllTime, Stale: true, Descending: descending, Limit: 990}
		got, err := readSamples(context.Background(), v, found, o)
		if err != nil {
			e.Fatal(err)
		}
		e.same("with markers", s, got, expected(all, o))
	}
}

// statsUnasked: without Summarize there are only samples, of any kind, and
// a kind without numbers is never summarized.
func statsUnasked(e *env) {
	for _, t := range []model.Type{model.TypeString, model.TypeNull, model.TypeComplex, "acme.blob"} {
		s := seriesA(t)
		samples := steps(t, someTimeMS, 500)
		for i := range samples {
			if t == model.TypeComplex {
				samples[i].value.data = "0123456789abcdef"
			}
		}
		e.put(s, samples, 500)
		e.merge()
		v := e.view()
		found, ok, err := findSeries(context.Background(), v, s, model.AllTime)
		if err != nil || !ok {
			e.Fatalf("select %s: found %v, error %v", s, ok, err)
		}
		got, err := readSummarized(context.Background(), v, found, store.ReadOptions{Range: model.AllTime}, samples, summarizers["all"], model.AllStats)
		if err != nil {
			e.Fatal(err)
		}
		e.same("summarize all of a kind without numbers", s, got, samples)
		v.Close()
	}
}
