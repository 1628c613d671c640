package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// seriesTests are about refs, epochs and the number of series.
var seriesTests = []test{
	{"lookup-and-create", lookupAndCreate},
	{"created-only-is-not-there", createdOnly},
	{"batch-of-another-epoch", otherEpoch},
	{"refs-from-before-a-purge", refsFromBeforePurge},
	{"refs-from-before-reopening", refsFromBeforeReopening},
	{"limit-error-says-what-is-needed", limitErrorFields},
	{"levels-of-many-names", levelsOfManyNames},
	{"100000-series", hundredThousandSeries},
}

func hostSeries(metric string, n int) model.Series {
	return model.Series{Metric: metric, Tags: model.MustTags("host", fmt.Sprintf("h%06d", n)), Type: model.TypeLong}
}

func (e *env) create(s model.Series) store.Ref {
	e.Helper()
	ref, err := e.s.Create(context.Background(), s)
	if err != nil {
		e.Fatalf("Create %s: %v", s, err)
	}
	return ref
}

func lookupAndCreate(e *env) {
	a, b := seriesA(model.TypeLong), seriesA(model.TypeDouble)
	if ref, ok := e.s.Lookup(a.AppendKey(nil)); ok {
		e.Fatalf("Lookup in an empty store found %d", ref)
	}
	refA, refB := e.create(a), e.create(b)
	if refA == refB {
		e.Fatalf("%s and %s have the same ref %d", a, b, refA)
	}
	if again := e.create(a); again != refA {
		e.Fatalf("Create of a known series gave ref %d, then %d", refA, again)
	}
	if ref, ok := e.s.Lookup(b.AppendKey(nil)); !ok || ref != refB {
		e.Fatalf("Lookup after Create: %d, %v; want %d, true", ref, ok, refB)
	}
	if n := e.s.SeriesCount(); n != 2 {
		e.Fatalf("SeriesCount is %d after 2 series were created", n)
	}
	if n, least := e.s.SeriesBytes(), int64(len(a.AppendKey(nil))+len(b.AppendKey(nil))); n < least {
		e.Fatalf("SeriesBytes is %d after 2 series with keys of %d bytes were created", n, least)
	}
}

// levelsOfManyNames lists levels above many names, which a store leaps over.
func levelsOfManyNames(e *env) {
	var b store.Batch
	b.Reset(e.s.Epoch())
	for i := range 1300 {
		branch := []string{"many", "many", "one"}[min(i%650, 2)] // many.0000, many.0001, one.0002 and on
		b.AddLong(e.create(model.Series{Metric: fmt.Sprintf("tree.%s.m%04d", branch, i), Type: model.TypeLong}), 1000, 1, 0)
	}
	b.AddLong(e.create(model.Series{Metric: "tree.z", Type: model.TypeLong}), 1000, 1, 0)
	if err := e.s.Append(context.Background(), &b); err != nil {
		e.Fatal(err)
	}
	e.levels()
	e.flush()
	e.levels()
}

func (e *env) levels() {
	v := e.view()
	defer v.Close()
	for _, limit := range []int{0, 1, 2, 3} {
		want := []string{"tree.many.", "tree.one.", "tree.z"}
		if limit > 0 {
			want = want[:limit]
		}
		got, more, err := v.Names(context.Background(), store.NamesQuery{Prefix: "tree.", Delimiter: '.', Limit: limit})
		if err != nil || !slices.Equal(got, want) || more != (limit == 1 || limit == 2) {
			e.Errorf("limit %d: %q, more %v, %v; want %q", limit, got, more, err, want)
		}
	}
	got, _, err := v.Names(context.Background(), store.NamesQuery{Prefix: "tree.one.", Delimiter: '.'})
	if err != nil || len(got) != 1296 {
		e.Errorf("%d leaves, %v; want 1296", len(got), err)
	}
	for _, q := range []store.NamesQuery{
		{Kind: store.TagNames, Delimiter: '.'}, {Delimiter: 0x7f}, {Delimiter: 0xc3}, {Delimiter: '.', Pattern: new(model.Pattern)},
	} {
		if _, _, err := v.Names(context.Background(), q); !errors.As(err, new(*store.InputError)) {
			e.Errorf("%+v: %v, want an InputError", q, err)
		}
	}
}

func createdOnly(e *env) {
	e.create(seriesA(model.TypeLong))
	e.expect("select load -raw", "(none)")
	e.expect("names metrics", "(none)")
	e.expect("names tagvalues", "(none)")
	e.reopen()
	e.expect("select load -raw", "(none)")
	e.must("append load{host=a}:long 1000=1")
	e.expect("read load{host=a}:long", "1000=1")
}

func otherEpoch(e *env) {
	ref := e.create(seriesA(model.TypeLong))
	var b store.Batch
	b.Reset(e.s.Epoch() + 1)
	b.AddLong(ref, 1000, 1, 0)
	if err := e.s.Append(context.Background(), &b); !errors.Is(err, store.ErrStale) {
		e.Fatalf("Append of a batch of another epoch: %v, want ErrStale", err)
	}
	e.expect("names metrics", "(none)")
}

// refsFromBeforePurge keeps a batch while its series are deleted, forgotten
// and others come to be. The batch may be refused as stale or land where it
// was meant to; it must never reach another series.
func refsFromBeforePurge(e *env) {
	e.must("append load{host=a}:long 1000=1 ; load{host=b}:long 1000=2")
	var old store.Batch
	a, b := seriesA(model.TypeLong), model.Series{Metric: "load", Tags: model.MustTags("host", "b"), Type: model.TypeLong}
	if err := fill(context.Background(), e.s, &old, []scriptSample{{series: a, timeMS: 5000, value: value{bits: 5}}, {series: b, timeMS: 5000, value: value{bits: 6}}}); err != nil {
		e.Fatal(err)
	}
	e.must("delete load host=a")
	e.merge()
	for i := range 50 {
		e.put(hostSeries("other", i), []readSample{{timeMS: 1000, value: value{bits: uint64(i)}}}, 1)
	}
	err := e.s.Append(context.Background(), &old)
	switch {
	case errors.Is(err, store.ErrStale):
		e.expect("select load", "load{host=b}:long")
		e.expect("read load{host=b}:long", "1000=2")
	case err == nil:
		e.expect("read load{host=a}:long", "5000=5")
		e.expect("read load{host=b}:long", "1000=2 5000=6")
	default:
		e.Fatalf("Append of a batch from before a purge: %v, want nil or ErrStale", err)
	}
	for i := range 50 {
		e.expect(fmt.Sprintf("read other{host=h%06d}:long", i), fmt.Sprintf("1000=%d", i))
	}
}

// refsFromBeforeReopening: after the store was closed and opened, a cached ref must not reach
// another series either. The epoch tells.
func refsFromBeforeReopening(e *env) {
	e.create(hostSeries("unused", 1))
	e.must("append load{host=a}:long 1000=1 ; load{host=b}:long 1000=2")
	before := e.s.Epoch()
	a := seriesA(model.TypeLong)
	refBefore := e.create(a)
	e.reopen()
	if e.s.Epoch() != before {
		return
	}
	if ref, ok := e.s.Lookup(a.AppendKey(nil)); !ok || ref != refBefore {
		e.Fatalf("after reopening the epoch is still %d but %s has ref %d (%v), was %d", before, a, ref, ok, refBefore)
	}
}

func limitErrorFields(e *env) {
	for i := range 5 {
		e.put(hostSeries("load", i), []readSample{{timeMS: 1000}}, 1)
	}
	v := e.view()
	defer v.Close()
	_, err := Select(context.Background(), v, store.Selection{Metric: "load", Range: model.AllTime, Limit: 3, LimitKey: "query.max_series"})
	var limit *store.LimitError
	if !errors.As(err, &limit) {
		e.Fatalf("Select of 5 series with limit 3: %v, want a *LimitError", err)
	}
	if limit.Limit != "query.max_series" || limit.Max != 3 || limit.Need != 0 && limit.Need < 4 || limit.Need > 5 {
		e.Fatalf("LimitError %+v, want Limit query.max_series, Max 3, Need 0, 4 or 5", *limit)
	}
}

// hundredThousandSeries spreads 100,000 series over 10 metrics; a tag value
// picks 1, 100 or 10,000 of them.
func hundredThousandSeries(e *env) {
	if testing.Short() {
		e.Skip("left out by -short")
	}
	const count, metrics = 100_000, 10
	var batch []scriptSample
	for i := range count {
		s := model.Series{Metric: fmt.Sprintf("metric%d", i%metrics), Type: model.TypeLong, Tags: model.MustTags(
			"host", fmt.Sprintf("h%05d", i/metrics), "rack", fmt.Sprintf("r%02d", i/metrics%100))}
		batch = append(batch, scriptSample{series: s, timeMS: int64(i), value: value{bits: uint64(i)}})
		if len(batch) == 10_000 {
			e.putAll(batch)
			batch = batch[:0]
		}
	}
	check := func(when string) {
		e.Helper()
		v := e.view()
		defer v.Close()
		selected := func(want int, matchers ...model.Matcher) []store.Series {
			e.Helper()
			list, err := Select(context.Background(), v, store.Selection{Metric: "metric3", Matchers: matchers, Range: model.AllTime})
			if err != nil || len(list) != want {
				e.Fatalf("%s: selected %d series of metric3 with %v, want %d; error %v", when, len(list), matchers, want, err)
			}
			return list
		}
		selected(10_000)
		selected(100, model.Matcher{Tag: "rack", Values: []string{"r42"}})
		one := selected(1, model.Matcher{Tag: "rack", Values: []string{"r42"}}, model.Matcher{Tag: "host", Values: []string{"h04242"}})
		got, err := readSamples(context.Background(), v, one[0], store.ReadOptions{Range: model.AllTime})
		if err != nil {
			e.Fatal(err)
		}
		e.same(when, one[0].Series, got, []readSample{{timeMS: 42_423, value: value{bits: 42_423}}})
		names, more, err := v.Names(context.Background(), store.NamesQuery{Kind: store.TagValues, Tag: "host"})
		if err != nil || more || len(names) != 10_000 {
			e.Fatalf("%s: %d hosts listed, more=%v, error %v; want 10000", when, len(names), more, err)
		}
	}
	check("as written")
	if n := e.s.SeriesCount(); n != count {
		e.Fatalf("SeriesCount is %d after %d series were written", n, count)
	}
	e.flush()
	e.reopen()
	check("opened again")
	e.must("delete metric3 rack=/r[0-8].*/")
	e.expect("names tagvalues -metric=metric3 -tag=rack -limit=2", "r90 r91 and more")
}
