package index

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// The memory of a series depends on its own tags, not on how many its metric has.
func TestManyTagNamesOfOneMetric(t *testing.T) {
	const count, sample = 20_000, 1000
	tag := func(i int) string { return fmt.Sprintf("tag-%05d", i*7919%count) }
	series := make([]model.Series, count)
	for i := range series {
		series[i] = model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags(tag(i), fmt.Sprint("value-", i))}
	}
	x := New()
	allocated := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / sample
	}
	for from := 0; from < count; from += sample {
		bytes := allocated(func() {
			for i := from; i < from+sample; i++ {
				x.Add(model.SeriesNumber(i), series[i])
			}
		})
		if most := uint64(4 << 10); bytes > most {
			t.Fatalf("a series takes %d bytes to add to %d tags, want at most %d", bytes, from, most)
		}
	}
	if got, want := x.Bytes(), x.Stats().SizeBytes; got < want/2 || got > want*3/2 {
		t.Errorf("%d bytes, Stats has %d", got, want)
	}
	names, _, err := x.Names(context.Background(), store.NamesQuery{Kind: store.TagNames, Metric: "m"})
	if err != nil || len(names) != count || !slices.IsSorted(names) {
		t.Errorf("%d names, sorted %v, %v", len(names), slices.IsSorted(names), err)
	}
	values, _, err := x.Names(context.Background(), store.NamesQuery{Kind: store.TagValues, Metric: "m"})
	if err != nil || len(values) != count || !slices.IsSorted(values) {
		t.Errorf("%d values, sorted %v, %v", len(values), slices.IsSorted(values), err)
	}
	values, more, err := x.Names(context.Background(), store.NamesQuery{Kind: store.TagValues, Limit: 3})
	if err != nil || !more || !slices.Equal(values, []string{"value-0", "value-1", "value-10"}) {
		t.Errorf("%q, %v, %v", values, more, err)
	}
	for i := range series {
		x.Remove(model.SeriesNumber(i), series[i])
	}
	if n := x.Bytes(); n != 0 {
		t.Errorf("%d bytes without series", n)
	}
}

// The expansion of an expression with many finite alternatives is bounded.
func TestFiniteAlternativesAreBounded(t *testing.T) {
	expr := "[^a]"
	for i := range 200 {
		expr += fmt.Sprintf("|%c%c[a-z][a-z]", 'a'+i%26, 'a'+i/26)
	}
	for i := range 300 {
		expr += fmt.Sprint("|n", i)
	}
	p, err := model.NewPattern(expr)
	if err != nil {
		t.Fatal(err)
	}
	pl := newPlan(p)
	if len(pl.exact) > maxExact {
		t.Errorf("%d texts, want at most %d", len(pl.exact), maxExact)
	}
	for _, text := range []string{"b", "a", "aazz", "ahzz", "azzz", "zfaa", "n1", "n299", "n300", "n29x", ""} {
		if got, want := pl.matches(text), p.MatchString(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
