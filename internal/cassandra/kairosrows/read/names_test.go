package read

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
)

// TestMetricNames compares pages of metric names with what sorting all of them
// gives, with names whose order by bytes is not ours.
func TestMetricNames(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	var all []string
	for i := range 60 {
		all = append(all, b.Name(fmt.Sprint("n", i)))
	}
	for _, odd := range []string{"\U0001f600", "\U0001f601x", "\uffee", "\uffee1", "\uf000", "é", "n1\U0001f600", "n1\uffee", "n1~"} {
		all = append(all, b.Name(odd))
	}
	for _, name := range all {
		b.Exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), name, []byte{0})
	}
	slices.SortFunc(all, model.CompareNames)
	pattern, err := model.NewPattern(".*[13x].*")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		q := store.NamesQuery{Kind: store.MetricNames, Prefix: b.Name(""), Limit: rng.IntN(20)}
		if rng.IntN(2) == 0 {
			q.Prefix = b.Name([]string{"n", "n1", "\uffee", "no such"}[rng.IntN(4)])
		}
		if rng.IntN(2) == 0 {
			q.After = all[rng.IntN(len(all))]
		}
		if rng.IntN(3) == 0 {
			q.Pattern = pattern
		}
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, q.Prefix) && (q.After == "" || model.CompareNames(name, q.After) > 0) && (q.Pattern == nil || q.Pattern.MatchString(name)) {
				want = append(want, name)
			}
		}
		wantMore := q.Limit > 0 && len(want) > q.Limit
		if wantMore {
			want = want[:q.Limit]
		}
		got, more, err := b.reader.Look().Names(t.Context(), q)
		if err != nil || more != wantMore || !slices.Equal(got, want) {
			t.Fatalf("%+v:\n%q, %v, %v\nwant %q, %v", q, got, more, err, want, wantMore)
		}
	}
}

// TestTagNames lists names and values of one metric and of all.
func TestTagNames(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	first, second, row := b.Name("first"), b.Name("second"), keyspacetest.CityTime(0)
	for i := range 5 {
		b.KairosRow(b.Stamp, first, row, model.MustTags("host", fmt.Sprint("h", i)))
		b.KairosRow(b.Stamp, second, row+int64(i)*int64(b.KS.Spec.Width), model.MustTags(b.Name("dc"), fmt.Sprint("d", i)))
	}
	for _, metric := range []string{first, second} {
		b.Exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), metric, []byte{0})
	}
	for _, test := range []struct {
		q    store.NamesQuery
		want []string
		more bool
	}{
		{store.NamesQuery{Kind: store.TagNames, Metric: first}, []string{"host"}, false},
		{store.NamesQuery{Kind: store.TagValues, Metric: first, Tag: "host", Limit: 2}, []string{"h0", "h1"}, true},
		{store.NamesQuery{Kind: store.TagValues, Metric: first, Tag: "host", After: "h2"}, []string{"h3", "h4"}, false},
		{store.NamesQuery{Kind: store.TagValues, Metric: second}, []string{"d0", "d1", "d2", "d3", "d4"}, false},
		{store.NamesQuery{Kind: store.TagValues, Metric: second, Tag: "host"}, nil, false},
		{store.NamesQuery{Kind: store.TagNames, Prefix: b.Name("")}, []string{b.Name("dc")}, false},
		{store.NamesQuery{Kind: store.TagValues, Tag: b.Name("dc"), Limit: 1}, []string{"d0"}, true},
		{store.NamesQuery{Kind: store.TagNames, Metric: b.Name("none")}, nil, false},
	} {
		for range 2 {
			got, more, err := b.reader.Look().Names(t.Context(), test.q)
			if err != nil || more != test.more || !slices.Equal(got, test.want) {
				t.Errorf("%+v: %q, %v, %v; want %q, %v", test.q, got, more, err, test.want, test.more)
			}
		}
	}
}
