package read

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
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

// TestPagesOfTagValues: a request that lists tag values in pages reads the row keys once, even if
// they do not fit into the cache.
func TestPagesOfTagValues(t *testing.T) {
	config := readConfig()
	config.PostingsCacheBytes = 1
	b := newReadBench(t, config, nil)
	const keys = 1000
	metric := b.Name("paged")
	b.FillKeys(metric, keyspacetest.CityTime(0), keyspacetest.CityKeys(0, keys))
	look := b.reader.Look()
	var all []string
	q := store.NamesQuery{Kind: store.TagValues, Metric: metric, Tag: "city", Limit: 100}
	for more := true; more; q.After = all[len(all)-1] {
		var page []string
		var err error
		if page, more, err = look.Names(t.Context(), q); err != nil || len(page) != q.Limit {
			t.Fatalf("after %d: %d values, %v", len(all), len(page), err)
		}
		all = append(all, page...)
	}
	if len(all) != keys || !slices.IsSorted(all) || len(slices.Compact(all)) != keys {
		t.Errorf("%d values: %.300q", len(all), all)
	}
	if read := look.trace[countFull].Load(); read != 1 {
		t.Errorf("the row keys were read %d times", read)
	}
}

// TestHold: the memory of row keys and names that a request reads is taken from that of the
// request, and reading ends once there is no more.
func TestHold(t *testing.T) {
	config := readConfig()
	config.PostingsCacheBytes = 1 // what is cached is not held by requests
	b := newReadBench(t, config, nil)
	const keys = 1000
	metric := b.Name("held")
	for row := range 3 {
		b.FillKeys(metric, keyspacetest.CityTime(row), keyspacetest.CityKeys(0, keys))
	}
	region := keyspacetest.OneOf("region", "region-1", "region-2")
	for name, ask := range map[string]func(*Look, func(int64) error) error{
		"all": func(l *Look, hold func(int64) error) error {
			_, err := l.Select(t.Context(), store.Selection{Metric: metric, Range: model.AllTime, Hold: hold})
			return err
		},
		"selective": func(l *Look, hold func(int64) error) error {
			_, err := l.Select(t.Context(), store.Selection{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{region}, Hold: hold})
			return err
		},
		"values": func(l *Look, hold func(int64) error) error {
			_, _, err := l.Names(t.Context(), store.NamesQuery{Kind: store.TagValues, Metric: metric, Hold: hold})
			return err
		},
	} {
		var held, peak atomic.Int64
		count := func(n int64) error {
			peak.Store(max(peak.Load(), held.Add(n))) // about: several goroutines hold
			return nil
		}
		if err := ask(b.reader.Look(), count); err != nil {
			t.Fatal(err)
		}
		least := int64(keys * keyOverhead)
		if name == "selective" {
			least /= 15
		}
		if held.Load() < least {
			t.Errorf("%s: %d bytes are held, want at least %d", name, held.Load(), least)
		}
		if name == "values" && held.Load() >= peak.Load() {
			t.Errorf("%s: nothing of %d bytes was given back", name, peak.Load())
		}
		full := &store.LimitError{Limit: "query.max_memory"}
		var left atomic.Int64
		left.Store(held.Load() / 2)
		err := ask(b.reader.Look(), func(n int64) error {
			if left.Add(-n) < 0 {
				return full
			}
			return nil
		})
		if !errors.Is(err, full) {
			t.Errorf("%s, with half of the memory: %v", name, err)
		}
	}
}
