package cassandra

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/model"
	"varve/internal/store"
)

// TestGuess: who asks again for few series is read to while the index is asked,
// and answered the same; what another server has added or deleted meanwhile counts,
// and so do samples of the spool.
func TestGuess(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	c.Read.Settle = 0
	registry := prometheus.NewRegistry()
	s := ready(t, openStore(t, c, Options{Registerer: registry}))
	guesses := func(result string) float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "varve_cassandra_guessed_selections_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == result {
					return m.GetCounter().GetValue()
				}
			}
		}
		return 0
	}
	from := time.Now().Add(-time.Hour).UnixMilli()
	o := between(from, from+10_000)
	a := model.Matcher{Tag: "host", Values: []string{"a"}}
	put(t, s, "m", "a", map[int64]int64{from: 1, from + 1000: 2, from + 20_000: 3})
	put(t, s, "m", "b", map[int64]int64{from: 10})
	flushed(t, s)

	first := answer(t, s, "m", o, a)
	if n := guesses("right") + guesses("wrong"); n != 0 {
		t.Errorf("%v guesses with nothing to go by", n)
	}
	same(t, "guessed", answer(t, s, "m", o, a), first...)
	if guesses("right") != 1 || guesses("wrong") != 0 {
		t.Errorf("%v right guesses and %v wrong ones, want 1 and 0", guesses("right"), guesses("wrong"))
	}

	// A selection that is read otherwise than it said, twice, or not at all.
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := v.Select(t.Context(), store.Selection{Metric: "m", Range: o.Range, Matchers: []model.Matcher{a}, ReadsAll: true})
	if err != nil || len(found) != 1 {
		t.Fatalf("%d series, %v", len(found), err)
	}
	for _, want := range []struct {
		o     store.ReadOptions
		first int64
	}{{store.ReadOptions{Range: o.Range, Descending: true, Limit: 1}, 2}, {o, 1}, {o, 1}} {
		cursor := v.Read(t.Context(), found[0], want.o)
		b, err := cursor.Next()
		if err != nil || b == nil || int64(b.Values[0]) != want.first {
			t.Errorf("read %+v: %+v, %v", want.o, b, err)
		}
		cursor.Close()
	}
	if _, err := v.Select(t.Context(), store.Selection{Metric: "m", Range: o.Range, Matchers: []model.Matcher{a}, ReadsAll: true}); err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}

	// Samples of the spool come with those that were read ahead.
	put(t, s, "m", "a", map[int64]int64{from + 2000: 5})
	right := guesses("right")
	with := answer(t, s, "m", o, a)
	if len(with) != 1 || with[0] == first[0] || guesses("right") != right+1 {
		t.Errorf("with the spool: %q, %v right guesses", with, guesses("right")-right)
	}

	// Another server adds a series that matches too, then deletes both.
	other := ready(t, openStore(t, c, Options{}))
	series := model.Series{Metric: "m", Tags: model.MustTags("host", "a", "dc", "x"), Type: model.TypeLong}
	var batch store.Batch
	batch.Reset(other.Epoch())
	ref, err := other.Create(t.Context(), series)
	if err != nil {
		t.Fatal(err)
	}
	batch.AddLong(ref, from+3000, 7, 0)
	if err := other.Append(t.Context(), &batch); err != nil {
		t.Fatal(err)
	}
	flushed(t, other)
	flushed(t, s)
	wrong := guesses("wrong")
	if got := answer(t, s, "m", o, a); len(got) != 2 || guesses("wrong") != wrong+1 {
		t.Errorf("after another server wrote: %q, %v wrong guesses", got, guesses("wrong")-wrong)
	}
	right = guesses("right")
	if got := answer(t, s, "m", o, a); len(got) != 2 || guesses("right") != right+1 {
		t.Errorf("after that: %q, %v right guesses", got, guesses("right")-right)
	}
	if err := other.Delete(t.Context(), store.Deletion{Metric: "m", Matchers: []model.Matcher{a}, Range: o.Range}); err != nil {
		t.Fatal(err)
	}
	if got := answer(t, s, "m", o, a); len(got) != 0 {
		t.Errorf("after another server deleted: %q", got)
	}
}
