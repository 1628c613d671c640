package query

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"varve/internal/model"
	"varve/internal/store"
)

// fillTags puts a sample at time 5 into random series, and returns these.
func fillTags(rt *rapid.T, f *fixture) map[string]model.Series {
	world := map[string]model.Series{}
	for range rapid.IntRange(0, 12).Draw(rt, "series") {
		metric := rapid.SampledFrom([]string{"a", "ab", "b", "c"}).Draw(rt, "metric")
		tags := []string{"h", rapid.SampledFrom([]string{"x", "y", "xy", "z"}).Draw(rt, "host")}
		if rapid.Bool().Draw(rt, "more tags") {
			tags = append(tags, rapid.SampledFrom([]string{"a", "dc", "x"}).Draw(rt, "tag"), rapid.SampledFrom([]string{"1", "2", "x"}).Draw(rt, "value"))
		}
		s := model.Series{Metric: metric, Tags: model.MustTags(tags...), Type: model.TypeLong}
		f.put(metric, s.Tags, sample{5, 1})
		world[s.String()] = s
	}
	return world
}

// tagsOfAll is what TagValues have to be of series.
func tagsOfAll(all []model.Series) (want []TagValues) {
	values := map[string]map[string]bool{}
	for _, s := range all {
		for name, value := range s.Tags.All() {
			if values[name] == nil {
				values[name] = map[string]bool{}
			}
			values[name][value] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		want = append(want, TagValues{name, slices.Sorted(maps.Keys(values[name]))})
	}
	return want
}

// TestNamesAgainstModel: names, tags and lists of series are those of the series that match.
func TestNamesAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFixture(t, DefaultConfig())
		world := fillTags(rt, f)
		s := f.session(t, t.Context())
		metric := rapid.SampledFrom([]string{"a", "ab", "b", "c", "none"}).Draw(rt, "of metric")
		var filter NamesFilter
		filter.Range = model.AllTime
		if rapid.Bool().Draw(rt, "by host") {
			filter.Matchers = []model.Matcher{{Tag: "h", Values: []string{rapid.SampledFrom([]string{"x", "xy", "none"}).Draw(rt, "of host")}}}
		}
		matching := func(metric string) (all []model.Series) {
			for _, key := range slices.Sorted(maps.Keys(world)) {
				host, _ := world[key].Tags.Get("h")
				if world[key].Metric == metric && (filter.Matchers == nil || filter.Matchers[0].MatchesValue(host)) {
					all = append(all, world[key])
				}
			}
			return all
		}

		// Names
		q := store.NamesQuery{
			Kind:   rapid.SampledFrom([]store.NameKind{store.MetricNames, store.TagNames, store.TagValues}).Draw(rt, "kind"),
			Prefix: rapid.SampledFrom([]string{"", "x", "a", "h"}).Draw(rt, "prefix"),
			Limit:  rapid.IntRange(0, 4).Draw(rt, "limit"),
		}
		if q.Kind == store.TagValues && rapid.Bool().Draw(rt, "of a tag") {
			q.Tag = rapid.SampledFrom([]string{"h", "dc", "none"}).Draw(rt, "tag")
		}
		if rapid.Bool().Draw(rt, "go on") {
			q.After = rapid.SampledFrom([]string{"a", "dc", "x"}).Draw(rt, "after")
		}
		if rapid.Bool().Draw(rt, "by pattern") {
			var err error
			if q.Pattern, err = model.NewPattern("..?"); err != nil {
				rt.Fatal(err)
			}
		}
		names := map[string]bool{}
		if q.Kind == store.MetricNames {
			for _, one := range world {
				if len(matching(one.Metric)) > 0 {
					names[one.Metric] = true
				}
			}
		} else {
			q.Metric = metric
			for _, tag := range tagsOfAll(matching(metric)) {
				if q.Kind == store.TagNames {
					names[tag.Name] = true
				} else if q.Tag == "" || q.Tag == tag.Name {
					for _, value := range tag.Values {
						names[value] = true
					}
				}
			}
		}
		var want []string
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if strings.HasPrefix(name, q.Prefix) && name > q.After && (q.Pattern == nil || len(name) <= 2) {
				want = append(want, name)
			}
		}
		wantMore := q.Limit > 0 && len(want) > q.Limit
		if wantMore {
			want = want[:q.Limit]
		}
		if got, more, err := s.Names(q, filter); err != nil || more != wantMore || !slices.Equal(got, want) {
			rt.Fatalf("%+v of %v: %q, more %t, %v; want %q, more %t", q, world, got, more, err, want, wantMore)
		}

		// Tags and lists
		selection := store.Selection{Metric: metric, Matchers: filter.Matchers, Range: filter.Range}
		all := matching(metric)
		l := s.Lease()
		list, err := s.Collect(selection, &l, nil)
		if err != nil || list.Len() != len(all) {
			rt.Fatalf("%d series and %v, want %v", list.Len(), err, all)
		}
		var series []store.Series
		for one := range list.All() {
			series = append(series, *one)
		}
		for n := range all {
			seen := 0
			for range list.All() {
				if seen++; seen > n {
					break
				}
			}
			if seen != n+1 {
				rt.Fatalf("%d series seen, want %d", seen, n+1)
			}
		}
		besides, err := s.TagValuesOf(series, &l)
		if want := fmt.Sprint(tagsOfAll(all)); err != nil || fmt.Sprint(besides) != want {
			rt.Fatalf("tags %v and %v, want %s", besides, err, want)
		}
		tags, err := s.SelectTags(selection, &l)
		if want := fmt.Sprint(tagsOfAll(all)); err != nil || fmt.Sprint(tags) != want {
			rt.Fatalf("tags %v and %v, want %s", tags, err, want)
		}
		if len(all) > 0 && l.Held() < int64(list.Len()*SeriesBytes+len(all)*keptBytes+valueBytes) {
			rt.Fatalf("%d series and their tags take %d bytes", len(all), l.Held())
		}
		if none, err := s.Collect(selection, &l, func(kind model.Type) bool { return kind != model.TypeLong }); err != nil || none.Len() != 0 {
			rt.Fatalf("%d series of another type, %v", none.Len(), err)
		}
		asked := 0
		has, err := s.Any(selection, func(model.Series) bool { asked++; return asked == 2 })
		if err != nil || has != (len(all) > 1) || asked != min(len(all), 2) {
			rt.Fatalf("asked for %d of %d series, found %t, %v", asked, len(all), has, err)
		}

		l.Release()
		s.Close(nil)
		if n := f.pool.inUse(); n != 0 {
			rt.Fatalf("%d bytes are held at the end", n)
		}
	})
}

// TestNamesEnd: names of tags need a metric, and a list ends with its context and with the
// limit of series.
func TestNamesEnd(t *testing.T) {
	config := DefaultConfig()
	config.MaxSeries = 2
	f := newFixture(t, config)
	for _, host := range []string{"x", "y", "z"} {
		f.put("many", model.MustTags("h", host), sample{5, 1})
	}
	f.put("one", model.MustTags("h", "x"), sample{5, 1})
	ctx, leave := context.WithCancelCause(t.Context())
	s := f.session(t, ctx)
	defer s.Close(nil)
	filter := NamesFilter{Range: model.AllTime}
	var input *store.InputError
	if _, _, err := s.Names(store.NamesQuery{Kind: store.TagNames}, filter); !errors.As(err, &input) {
		t.Errorf("tags of all metrics: %v", err)
	}
	// A metric with more series than a query may read is listed.
	if got, more, err := s.Names(store.NamesQuery{Kind: store.MetricNames}, filter); err != nil || more || !slices.Equal(got, []string{"many", "one"}) {
		t.Errorf("metrics %q, more %t, %v", got, more, err)
	}
	l := s.Lease()
	many := store.Selection{Metric: "many", Range: model.AllTime}
	_, _, tagNames := s.Names(store.NamesQuery{Kind: store.TagNames, Metric: "many"}, filter)
	_, collected := s.Collect(many, &l, nil)
	_, selected := s.SelectTags(many, &l)
	_, asked := s.Any(many, func(model.Series) bool { return false })
	for what, err := range map[string]error{"tag names": tagNames, "series": collected, "tags": selected, "any": asked} {
		var limit *store.LimitError
		if !errors.As(err, &limit) || limit.Limit != "query.max_series" || limit.Max != 2 {
			t.Errorf("%s of three series: %v", what, err)
		}
	}
	gone := errors.New("the client has left")
	leave(gone)
	one := store.Selection{Metric: "one", Range: model.AllTime}
	_, _, metricNames := s.Names(store.NamesQuery{Kind: store.MetricNames}, filter)
	_, _, tagNames = s.Names(store.NamesQuery{Kind: store.TagNames, Metric: "one"}, filter)
	_, _, page := s.NamesPage(store.NamesQuery{Kind: store.MetricNames})
	_, collected = s.Collect(one, &l, nil)
	_, selected = s.SelectTags(one, &l)
	for what, err := range map[string]error{"metric names": metricNames, "tag names": tagNames, "page": page, "series": collected, "tags": selected} {
		if err != gone {
			t.Errorf("%s after the client has left: %v", what, err)
		}
	}
}

// TestTrace: a query that is traced tells what it read, another one only how much.
func TestTrace(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	f.store.BlockSamples = 2
	f.put("long", model.MustTags("h", "x"), sample{1, 1}, sample{2, 1}, sample{3, 1})
	f.put("text", model.MustTags("h", "x"), sample{1, "abc"}, sample{2, "de"})
	for _, traced := range []bool{false, true} {
		s, err := f.Begin(t.Context(), Request{Trace: traced})
		if err != nil {
			t.Fatal(err)
		}
		for _, metric := range []string{"long", "text"} {
			l := s.Lease()
			list, err := s.Collect(store.Selection{Metric: metric, Range: model.AllTime}, &l, nil)
			if err != nil {
				t.Fatal(err)
			}
			for one := range list.All() {
				c := s.Open(*one, store.ReadOptions{Range: model.AllTime})
				for {
					block, err := c.Next()
					if err != nil {
						t.Fatal(err)
					}
					if block == nil {
						break
					}
				}
				c.Close()
			}
		}
		got := s.Stats()
		s.Close(nil)
		blocks, bytes := int64(0), int64(0)
		if traced {
			blocks, bytes = 3, 3*16+2*8+5
		}
		if got.Series != 2 || got.Samples != 5 || got.Blocks != blocks || got.Bytes != bytes || (got.Read > 0) != traced || got.Index <= 0 {
			t.Errorf("traced %t: %+v, want %d blocks of %d bytes", traced, got, blocks, bytes)
		}
	}
}

// A holding store holds memory for each metric of which it selects series.
type holding struct {
	store.Viewer
	bytes int64
}

type holdingView struct {
	store.View
	bytes int64
}

func (h holding) View(ctx context.Context) (store.View, error) {
	v, err := h.Viewer.View(ctx)
	return holdingView{v, h.bytes}, err
}

func (v holdingView) Select(ctx context.Context, want store.Selection) iter.Seq2[store.Series, error] {
	if err := want.Hold(v.bytes); err != nil {
		return store.SelectNone(err)
	}
	return v.View.Select(ctx, want)
}

// TestNamesWithoutMemory: a metric is not listed because there is no memory to look for its series.
func TestNamesWithoutMemory(t *testing.T) {
	of := newFixture(t, DefaultConfig())
	of.put("load", model.MustTags("h", "x"), sample{5, 1})
	config := DefaultConfig()
	config.MaxMemory = 1000
	s := fixtureOver(t, holding{of.store, 1001}, config).session(t, t.Context())
	defer s.Close(nil)
	filter := NamesFilter{Range: model.AllTime, Matchers: []model.Matcher{{Tag: "h", Values: []string{"none"}}}}
	names, _, err := s.Names(store.NamesQuery{Kind: store.MetricNames}, filter)
	if limit, ok := errors.AsType[*store.LimitError](err); !ok || limit.Limit != "query.max_memory" {
		t.Errorf("got %q, %v", names, err)
	}
}

// A slowContext takes a second to say whether it has ended.
type slowContext struct{ context.Context }

func (c slowContext) Err() error {
	time.Sleep(time.Second)
	return c.Context.Err()
}

// All of the time in which names are listed is time of the index, that for sorting and filtering them too.
func TestTimeOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, DefaultConfig())
		f.put("a", model.MustTags("h", "x"), sample{1, 1})
		f.put("a", model.MustTags("h", "y"), sample{1, 1})
		all, err := model.NewPattern(".*")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []store.NamesQuery{{Kind: store.MetricNames}, {Kind: store.TagNames, Metric: "a"}, {Kind: store.TagValues, Metric: "a"}} {
			s, err := f.Begin(t.Context(), Request{})
			if err != nil {
				t.Fatal(err)
			}
			q.Pattern, s.ctx = all, slowContext{s.ctx}
			began := time.Now()
			if _, _, err := s.Names(q, NamesFilter{Range: model.AllTime}); err != nil {
				t.Fatal(err)
			}
			if took, got := time.Since(began), s.Stats().Index; got != took || took == 0 {
				t.Errorf("%+v took %v, of which %v count as time of the index", q, took, got)
			}
			s.Close(nil)
		}
	})
}
