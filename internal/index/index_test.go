package index_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/store"
)

// naive answers as Index does, by reading every series.
type naive map[uint32]model.Series

func (n naive) selects(metric string, ms []model.Matcher) []uint32 {
	ids := []uint32{}
	for id, s := range n {
		if s.Metric == metric && model.MatchesAll(ms, s.Tags) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (n naive) names(q store.NamesQuery) (names []string, more bool) {
	set := map[string]bool{}
	for _, s := range n {
		if q.Kind == store.MetricNames {
			set[s.Metric] = true
			continue
		}
		if q.Metric != "" && s.Metric != q.Metric {
			continue
		}
		for name, value := range s.Tags.All() {
			if q.Kind == store.TagNames {
				set[name] = true
			} else if q.Tag == "" || q.Tag == name {
				set[value] = true
			}
		}
	}
	entries := map[string]bool{}
	for name := range maps.Keys(set) {
		if strings.HasPrefix(name, q.Prefix) {
			if i := strings.IndexByte(name[len(q.Prefix):], q.Delimiter); q.Delimiter != 0 && i >= 0 {
				name = name[:len(q.Prefix)+i+1]
			}
			entries[name] = true
		}
	}
	for name := range maps.Keys(entries) {
		if strings.HasPrefix(name, q.Prefix) && (q.Pattern == nil || q.Pattern.MatchString(name)) &&
			model.CompareNames(name, q.After) > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, model.CompareNames)
	if q.Limit > 0 && len(names) > q.Limit {
		return names[:q.Limit], true
	}
	return names, false
}

// Names with common prefixes, and around the places where the order of UTF-8
// bytes and of UTF-16 units differ.
var someNames = []string{"a", "ab", "abc", "b", "B", "a\nb", "ba", "é", "\ue000", "\ue000a", "\uffff", "\U00010000",
	"\U0001f600", "\U0001f600a", "\U0001f601", "a\U0001f600", "a\uffff", "host-1", "host-2", "host-10", "host-", "日本"}

var somePatterns = []string{"a|b", "a.*", ".*b", ".*", ".+", "", "a.+", "(?s)a.*", "host-[0-9]", "host-[0-9]+", "host-1.*|B",
	"(?i)b", "(?i)HOST-1", ".*-.*", ".*o.t.*", "\U0001f600.*", "\U0001f600.?", ".", "..", ".+.+", "[^a]", "(a|b)+", "a(b(c)?)?",
	"\ue000?a?", "\ufffd", "ho.*(1|2).*0", "x*", "^a$", "host-(1|2)0?", "日.+", "a|ab.*|.*c",
	"a[^x]*|ab[^y]*|.*[bc]", "ho[^x]+1|ho[^y]+2|host-1.*|B", "[^a]*|[^b]*|[^c]*", "a[bx]+|a|host-[0-9]+|h.*"}

var manyTags = strings.Fields("n01 n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 n20 n21 n22 n23 n24 n25 n26 n27 n28")

func drawName(t *rapid.T, label string) string {
	if rapid.IntRange(0, 3).Draw(t, label+" kind") == 0 {
		return rapid.StringN(1, 3, 12).Draw(t, label)
	}
	return rapid.SampledFrom(someNames).Draw(t, label)
}

func drawSeries(t *rapid.T) model.Series {
	var tags []model.Tag
	names, most := []string{"host", "dc", "\ue000", "\U0001f600"}, 3
	if rapid.IntRange(0, 3).Draw(t, "many tags") == 0 { // enough for a map of them, with others' even more
		names, most = append(names, manyTags...), 24
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, most, rapid.ID).Draw(t, "tags") {
		tags = append(tags, model.Tag{Name: name, Value: drawName(t, "value")})
	}
	set, err := model.NewTags(tags...)
	if err != nil {
		t.Fatal(err)
	}
	return model.Series{
		Metric: rapid.SampledFrom(someNames[:6]).Draw(t, "metric"),
		Tags:   set,
		Type:   rapid.SampledFrom([]model.Type{model.TypeLong, model.TypeDouble}).Draw(t, "type"),
	}
}

func drawPattern(t *rapid.T) *model.Pattern {
	p, err := model.NewPattern(rapid.SampledFrom(somePatterns).Draw(t, "pattern"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func drawMatchers(t *rapid.T) []model.Matcher {
	var ms []model.Matcher
	for range rapid.IntRange(0, 2).Draw(t, "matchers") {
		m := model.Matcher{Tag: rapid.SampledFrom([]string{"host", "dc", "\ue000", "rack"}).Draw(t, "tag")}
		for range rapid.IntRange(0, 2).Draw(t, "values") {
			m.Values = append(m.Values, drawName(t, "value"))
		}
		for range rapid.IntRange(0, 2).Draw(t, "patterns") {
			m.Patterns = append(m.Patterns, drawPattern(t))
		}
		m.Not, m.Absent = rapid.Bool().Draw(t, "not"), rapid.Bool().Draw(t, "absent")
		ms = append(ms, m)
	}
	return ms
}

func drawNamesQuery(t *rapid.T) store.NamesQuery {
	q := store.NamesQuery{
		Kind:  store.NameKind(rapid.IntRange(0, 2).Draw(t, "kind")),
		Limit: rapid.IntRange(0, 4).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "of a metric") {
		q.Metric = rapid.SampledFrom(someNames[:7]).Draw(t, "metric")
	}
	if rapid.Bool().Draw(t, "of a tag") {
		q.Tag = rapid.SampledFrom([]string{"host", "dc", "\U0001f600"}).Draw(t, "tag")
	}
	if rapid.Bool().Draw(t, "has prefix") {
		name := drawName(t, "prefix of")
		q.Prefix = name[:rapid.IntRange(0, len(name)).Draw(t, "prefix bytes")]
	}
	if rapid.Bool().Draw(t, "has after") {
		q.After = drawName(t, "after")
	}
	if rapid.Bool().Draw(t, "has pattern") {
		q.Pattern = drawPattern(t)
	} else if q.Kind == store.MetricNames && rapid.Bool().Draw(t, "has delimiter") {
		q.Delimiter = rapid.SampledFrom([]byte{'.', 'a', 'o', '-'}).Draw(t, "delimiter")
	}
	return q
}

// TestAgainstNaive compares random adds, removes and queries with an index that reads
// every series.
func TestAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, n := index.New(), naive{}
		// Ids on both sides of 2^31: the upper ones are never handles.
		ids := rapid.Custom(func(t *rapid.T) uint32 {
			return rapid.Uint32Range(0, 40).Draw(t, "n") + 1<<31*rapid.Uint32Range(0, 1).Draw(t, "high") - rapid.Uint32Range(0, 1).Draw(t, "edge")
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				if s, known := n[id]; known {
					x.Add(model.SeriesNumber(id), s)
					return
				}
				n[id] = drawSeries(t)
				x.Add(model.SeriesNumber(id), n[id])
			},
			"remove": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				s, known := n[id]
				if !known {
					s = drawSeries(t)
				}
				x.Remove(model.SeriesNumber(id), s)
				delete(n, id)
			},
			"select": func(t *rapid.T) {
				metric, ms := rapid.SampledFrom(someNames[:7]).Draw(t, "metric"), drawMatchers(t)
				got, err := x.Select(context.Background(), metric, ms, nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(n.selects(metric, ms), got.ToArray()); diff != "" {
					t.Fatalf("Select(%q, %v): -want +got\n%s", metric, ms, diff)
				}
				got.AddRange(0, 1<<17) // the result is ours
			},
			"names": func(t *rapid.T) {
				q := drawNamesQuery(t)
				names, more, err := x.Names(context.Background(), q)
				if err != nil {
					t.Fatal(err)
				}
				wantNames, wantMore := n.names(q)
				if !slices.Equal(names, wantNames) || more != wantMore {
					t.Fatalf("Names(%+v) = %q, %v, want %q, %v", q, names, more, wantNames, wantMore)
				}
			},
			"": func(t *rapid.T) {
				if x.Len() != len(n) {
					t.Fatalf("Len = %d, want %d", x.Len(), len(n))
				}
				n.checkStats(t, x.Stats())
			},
		})
		for id, s := range n {
			x.Remove(model.SeriesNumber(id), s)
		}
		if got := x.Stats(); got.Metrics != 0 || got.TagNames != 0 || got.TagPairs != 0 || got.Postings != 0 || got.Series != 0 {
			t.Fatalf("something is left of an empty index: %+v", got)
		}
	})
}

func (n naive) checkStats(t *rapid.T, got index.Stats) {
	metrics, keys, pairs, postings := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range n {
		metrics[s.Metric] = true
		for name, value := range s.Tags.All() {
			keys[name] = true
			pairs[fmt.Sprintf("%q=%q", name, value)] = true
			postings[fmt.Sprintf("%q %q=%q", s.Metric, name, value)] = true
		}
	}
	got.SizeBytes = 0
	want := index.Stats{Series: len(n), Metrics: len(metrics), TagNames: len(keys), TagPairs: len(pairs), Postings: len(postings)}
	if got != want {
		t.Fatalf("Stats = %+v, want %+v", got, want)
	}
}

// TestLargeLists grows lists past the size of a bitmap and of a dictionary
// leaf and shrinks them again, in another order.
func TestLargeLists(t *testing.T) {
	const count = 5000
	x := index.New()
	series := func(i int) model.Series {
		return model.Series{Metric: fmt.Sprintf("m%d", i%3), Type: model.TypeLong, Tags: model.MustTags(
			"all", "same", "host", fmt.Sprintf("host-%04d", i*7919%count), "few", fmt.Sprint(i%10), "many", fmt.Sprint(i%4 < 3), "most", fmt.Sprint(i%5 < 4))}
	}
	n := naive{}
	check := func() {
		t.Helper()
		matchers := []model.Matcher{
			{Tag: "all", Values: []string{"same"}},
			{Tag: "few", Values: []string{"3", "7"}},
			{Tag: "many", Values: []string{"true"}},
			{Tag: "most", Values: []string{"true"}},
			{Tag: "most", Values: []string{"true"}, Not: true},
			{Tag: "host", Patterns: []*model.Pattern{pattern(t, "host-1.*")}},
			{Tag: "host", Patterns: []*model.Pattern{pattern(t, ".*9[0-4].*|.*77")}},
		}
		for i, a := range matchers {
			for _, b := range matchers[i:] { // with itself: that one alone
				both := []model.Matcher{a, b}
				got, err := x.Select(context.Background(), "m1", both, nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(n.selects("m1", both), got.ToArray()); diff != "" {
					t.Fatalf("%d series, %v: -want +got\n%s", len(n), both, diff)
				}
			}
		}
		for _, q := range []store.NamesQuery{
			{Kind: store.TagValues, Tag: "host"},
			{Kind: store.TagValues, Tag: "host", Metric: "m2", Prefix: "host-12", Limit: 7},
			{Kind: store.TagValues, After: "host-2", Limit: 1000},
		} {
			names, more, err := x.Names(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			wantNames, wantMore := n.names(q)
			if !slices.Equal(names, wantNames) || more != wantMore {
				t.Fatalf("%d series, %+v: got %d names (%v), want %d (%v)", len(n), q, len(names), more, len(wantNames), wantMore)
			}
		}
	}
	for i := range count {
		id := i * 31 % count
		n[uint32(id)] = series(id)
		x.Add(model.SeriesNumber(id), n[uint32(id)])
		if i%1237 == 0 {
			check()
		}
	}
	check()
	for i := range count {
		id := i * 17 % count
		x.Remove(model.SeriesNumber(id), n[uint32(id)])
		delete(n, uint32(id))
		if i%617 == 0 {
			check()
		}
	}
	check()
}

// TestListsOfAllSizes selects unions of large, small and single lists, close together and far
// apart. What Select returns is the caller's.
func TestListsOfAllSizes(t *testing.T) {
	for _, stride := range []int{1, 100_000} {
		x, n := index.New(), naive{}
		for i := range 8000 {
			tags := []string{"all", "same", "third", fmt.Sprint(i%3 == 0)}
			if class := classOf(i); class != "" {
				tags = append(tags, "class", class)
			}
			s := model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags(tags...)}
			n[uint32(i*stride)] = s
			x.Add(model.SeriesNumber(i*stride), s)
		}
		// So many matchers that those after them are evaluated in a group of their own, within their result.
		some := slices.Repeat([]model.Matcher{{Tag: "third", Values: []string{"false"}}}, 16)
		same := model.Matcher{Tag: "all", Values: []string{"same"}}
		for _, values := range [][]string{
			{"large"}, {"large", "other"}, {"large", "medium"}, {"large", "other", "medium", "single-7", "nothing"}, {"medium", "single-7"}, {"single-7", "single-17"}, {"nothing"},
		} {
			for _, m := range []model.Matcher{{}, {Not: true}, {Absent: true}, {Not: true, Absent: true}} {
				m.Tag, m.Values = "class", values
				for _, ms := range [][]model.Matcher{{m}, {m, same}} {
					checkSelect(t, x, n, ms)
					checkSelect(t, x, n, slices.Concat(some, ms))
				}
			}
		}
		checkSelect(t, x, n, nil)
		checkSelect(t, x, n, some)
	}
}

// classOf spreads 8000 series over two lists of more than a thousand ids, one of hundreds, and
// lists of one. Some have no class.
func classOf(i int) string {
	switch i % 10 {
	case 0, 1, 2, 3:
		return "large"
	case 4, 5:
		return "other"
	case 6:
		return "medium"
	case 7:
		return fmt.Sprint("single-", i)
	}
	return ""
}

// checkSelect compares a selection with that of n. It changes the result, and compares again.
func checkSelect(t *testing.T, x *index.Index, n naive, ms []model.Matcher) {
	t.Helper()
	want := n.selects("m", ms)
	for range 2 {
		got, err := x.Select(context.Background(), "m", ms, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.ToArray(), want) {
			t.Fatalf("%v: %d series, want %d", ms, got.GetCardinality(), len(want))
		}
		got.Clear()
	}
}

func TestInputErrors(t *testing.T) {
	x := index.New()
	if _, err := x.Select(context.Background(), "m", []model.Matcher{{Tag: "host", Patterns: []*model.Pattern{nil}}}, nil); !isInputError(err) {
		t.Errorf("Select with a nil pattern: %v, want an InputError", err)
	}
	if _, _, err := x.Names(context.Background(), store.NamesQuery{Kind: 7}); !isInputError(err) {
		t.Errorf("Names of kind 7: %v, want an InputError", err)
	}
}

func isInputError(err error) bool {
	_, ok := err.(*store.InputError)
	return ok
}

func pattern(t testing.TB, expr string) *model.Pattern {
	t.Helper()
	p, err := model.NewPattern(expr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestListIsGivenAgain removes a series in between, after which the list of the tag
// value that Add met last belongs to another value.
func TestListIsGivenAgain(t *testing.T) {
	series := func(host string) model.Series {
		return model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("host", host)}
	}
	x := index.New()
	x.Add(1, series("a"))
	x.Add(2, series("a")) // a has a list
	x.Remove(2, series("a"))
	x.Add(3, series("b"))
	x.Add(4, series("b")) // the same list, now of b
	x.Add(5, series("a"))
	x.Add(6, series("a"))
	x.Remove(5, series("a"))
	x.Add(7, series("a"))
	for host, want := range map[string][]uint32{"a": {1, 6, 7}, "b": {3, 4}} {
		got, err := x.Select(context.Background(), "m", []model.Matcher{{Tag: "host", Values: []string{host}}}, nil)
		if err != nil || !slices.Equal(got.ToArray(), want) {
			t.Errorf("host=%s: %v, %v, want %v", host, got, err, want)
		}
	}
}

// TestAddAfterRemove adds to the value that Add met last right after its list was
// freed.
func TestAddAfterRemove(t *testing.T) {
	s := model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("host", "a")}
	x := index.New()
	for id := range model.SeriesNumber(2) {
		x.Add(id, s)
	}
	x.Remove(0, s)
	x.Add(2, s)
	got, err := x.Select(context.Background(), "m", []model.Matcher{{Tag: "host", Values: []string{"a"}}}, nil)
	if err != nil || !slices.Equal(got.ToArray(), []uint32{1, 2}) {
		t.Errorf("%v, %v, want 1 and 2", got, err)
	}
}
