package read

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/store"
)

// drawTags draws small sets of tags, in names that sort before and after each
// other in every way.
func drawTags(t *rapid.T) model.Tags {
	var tags []model.Tag
	for _, name := range []string{"a", "b", "b\x00", "c", "é", "\U00010000", "\uffee"} {
		if rapid.IntRange(0, 2).Draw(t, "has "+name) > 0 {
			tags = append(tags, model.Tag{Name: name, Value: rapid.SampledFrom([]string{"1", "1\x00", "2", "3", "\uffee", "\U00010000"}).Draw(t, "value")})
		}
	}
	set, err := model.NewTags(tags...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestSkipScan: whatever there is and whatever is asked for, a scan that is given
// pages of any size from where it wants to go on finds what matches, and passes
// by nothing that does.
func TestSkipScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rowkey.Key {
			return rowkey.Key{Type: rapid.SampledFrom([]model.Type{model.TypeDouble, model.TypeLong, "x"}).Draw(t, "type"), Tags: drawTags(t)}
		}), 0, 80).Draw(t, "keys")
		at := func(k rowkey.Key) place { return place{string(k.Type), rowkey.ServerOrder(k.Tags)} }
		slices.SortFunc(keys, func(a, b rowkey.Key) int { return at(a).compare(at(b)) })
		keys = slices.Compact(keys)
		matchers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.Matcher {
			return keyspacetest.OneOf(rapid.SampledFrom([]string{"a", "b", "c", "é", "\uffee"}).Draw(t, "tag"),
				rapid.SliceOfN(rapid.SampledFrom([]string{"0", "1", "2", "3", "\uffee"}), 1, 3).Draw(t, "values")...)
		}), 1, 3).Draw(t, "matchers")
		var want []rowkey.Key
		for _, k := range keys {
			if model.MatchesAll(matchers, k.Tags) {
				want = append(want, k)
			}
		}
		literals, possible := sortedLiterals(matchers)
		if !possible {
			if len(want) > 0 {
				t.Fatalf("%v is said to be impossible, matches %v", matchers, want)
			}
			return
		}
		s := skipScan{literals: literals}
		var got []rowkey.Key
		size := rapid.IntRange(1, 5).Draw(t, "page")
		for range len(keys) + 5 {
			first := slices.IndexFunc(keys, func(k rowkey.Key) bool { return at(k).compare(s.from) >= 0 })
			if first < 0 {
				break
			}
			for _, k := range keys[first:min(first+size, len(keys))] {
				before := s.from
				if s.see(k) {
					got = append(got, k)
				}
				if s.from.compare(before) < 0 {
					t.Fatalf("it went back from %v to %v", before, s.from)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v: found %v, want %v of %v", matchers, got, want, keys)
		}
	})
}

// TestScans: what a scan of a partition that the inverted index lacks finds, and
// when it gives way to reading the partition whole.
func TestScans(t *testing.T) {
	config := readConfig()
	b := newReadBench(t, config, nil)
	row := keyspacetest.CityTime(0)
	within := model.TimeRange{StartMS: row, EndMS: row + 1}
	long := strings.Repeat("y", 70_000)
	for _, test := range []struct {
		name     string
		tags     []model.Tags
		matchers []model.Matcher
		found    int
		whole    bool
	}{
		{"nothing", nil, []model.Matcher{keyspacetest.OneOf("a", "1")}, 0, false},
		{"no such tag", []model.Tags{{}, model.MustTags("a", "1"), model.MustTags("c", "1")}, []model.Matcher{keyspacetest.OneOf("b", "1")}, 0, false},
		{"without tags", []model.Tags{{}}, []model.Matcher{keyspacetest.OneOf("b", "1")}, 0, false},
		{"two tags and a pattern", []model.Tags{model.MustTags("a", "1", "b", "1"), model.MustTags("a", "1", "b", "2"), model.MustTags("a", "1", "b", "2", "c", "x1"), model.MustTags("a", "1", "b", "2", "c", "y1"), model.MustTags("b", "2")},
			[]model.Matcher{keyspacetest.OneOf("b", "2", "3"), keyspacetest.OneOf("a", "1"), {Tag: "c", Patterns: []*model.Pattern{keyspacetest.Pattern(t, "x.*")}}}, 1, false},
		{"one tag twice", []model.Tags{model.MustTags("a", "1"), model.MustTags("a", "2"), model.MustTags("a", "3")}, []model.Matcher{keyspacetest.OneOf("a", "1", "2"), keyspacetest.OneOf("a", "2", "3")}, 1, false},
		{"one tag twice, for nothing", []model.Tags{model.MustTags("a", "1")}, []model.Matcher{keyspacetest.OneOf("a", "1"), keyspacetest.OneOf("a", "2")}, 0, false},
		{"a value too long to be there", []model.Tags{model.MustTags("a", "1"), model.MustTags("b", "1")}, []model.Matcher{keyspacetest.OneOf("b", long)}, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			metric := b.Name(test.name)
			b.Exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, schema.DataPoints, row)
			for _, tags := range test.tags {
				b.Stamp++
				b.KairosRow(b.Stamp, metric, row, tags)
			}
			l := b.reader.Look()
			found := b.lookup(l, store.Selection{Metric: metric, Range: within, Matchers: test.matchers})
			if trace := keyspacetest.CountsOf(l.Counts()); len(found) != test.found || trace["partitions_uncovered"] != 1 || (trace["partitions_full"] == 1) != test.whole || (trace["partitions_scanned"] == 1) == test.whole {
				t.Errorf("%d series, trace %+v", len(found), trace)
			}
		})
	}
	t.Run("limit", func(t *testing.T) {
		metric := b.Name("limit")
		b.FillKairos(metric, row, keyspacetest.CityKeys(0, 1500))
		ask := func(limit int) error {
			_, err := b.reader.Look().Lookup(t.Context(), store.Selection{Metric: metric, Range: within, Limit: limit, LimitKey: "query.max_series",
				Matchers: []model.Matcher{keyspacetest.OneOf("region", "region-7")}})
			return err
		}
		var limit *store.LimitError
		if err := ask(49); !errors.As(err, &limit) || limit.Need <= 49 {
			t.Errorf("50 series of 49: %v", err)
		}
		if err := ask(50); err != nil {
			t.Error(err)
		}
	})
	t.Run("pages", func(t *testing.T) { // a scan asks for more row keys each time: 64, 256, 1024 and the rest
		metric := b.Name("pages")
		var keys []rowkey.Key
		for i := range 2500 {
			keys = append(keys, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("all", "x", "id", fmt.Sprint(i))})
		}
		b.FillKairos(metric, row, keys)
		b.Counts.Take()
		found := b.lookup(nil, store.Selection{Metric: metric, Range: within, Matchers: []model.Matcher{keyspacetest.OneOf("all", "x")}})
		if pages := b.Counts.Take()[seekRowKeys.Name]; len(found) != 2500 || pages > 10 {
			t.Errorf("%d series in %d pages", len(found), pages)
		}
	})
	t.Run("kept", func(t *testing.T) {
		metric := b.Name("kept")
		b.FillKairos(metric, row, keyspacetest.CityKeys(0, 100))
		sel := store.Selection{Metric: metric, Range: within, Matchers: []model.Matcher{keyspacetest.OneOf("city", "city-000007")}}
		b.lookup(nil, sel)
		b.Counts.Take()
		l := b.reader.Look()
		if found := b.lookup(l, sel); len(found) != 1 || keyspacetest.CountsOf(l.Counts())["partitions_cached"] != 1 || b.Counts.Take()["seek_row_keys"] > 0 {
			t.Errorf("asked again: %d series, trace %+v", len(found), keyspacetest.CountsOf(l.Counts()))
		}
		b.Stamp++
		b.KairosRow(b.Stamp, metric, row, model.MustTags("city", "city-000007", "new", "yes"))
		if found := b.lookup(nil, sel); len(found) != 2 {
			t.Errorf("after KairosDB added one: %d series", len(found))
		}
	})
}

// TestServerOrder: Cassandra keeps row keys in the order that scans count on,
// whatever characters there are.
func TestServerOrder(t *testing.T) {
	config := readConfig()
	b := newReadBench(t, config, nil)
	metric := b.Name("m")
	p := rowkey.Partition{Metric: metric, TimeMS: keyspacetest.CityTime(0)}
	var keys []rowkey.Key
	gen := rapid.Custom(drawTags)
	for i := range 300 {
		keys = append(keys, rowkey.Key{Type: []model.Type{model.TypeDouble, model.TypeLong, "x"}[i%3], Tags: gen.Example(i)})
	}
	b.FillKairos(metric, p.TimeMS, keys)
	l := b.reader.Look()
	var stored []rowkey.Key
	for from, more := (place{}), true; more; {
		tags, err := model.NewTags(from.tags...)
		if err != nil {
			t.Fatal(err)
		}
		page, err := l.seek(t.Context(), &partition{key: p}, from.typ, tags, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page {
			at := place{string(k.Type), rowkey.ServerOrder(k.Tags)}
			if at.compare(from) < 0 {
				t.Fatalf("%v comes after %v", at, from)
			}
			from = at.next()
		}
		stored, more = append(stored, page...), len(page) > 0
	}
	distinct := map[rowkey.Key]bool{}
	for _, k := range keys {
		distinct[k] = true
	}
	if len(stored) != len(distinct) || len(stored) < 100 {
		t.Errorf("%d row keys were read, %d written", len(stored), len(distinct))
	}
	for i := range 40 {
		tag := []string{"a", "b", "b\x00", "c", "é", "\U00010000", "\uffee"}[i%7]
		matchers := []model.Matcher{keyspacetest.OneOf(tag, []string{"1", "2", "\uffee", "\U00010000"}[i%4], "3")}
		if i%3 == 0 {
			matchers = append(matchers, keyspacetest.OneOf("c", "1", "2", "\uffee"))
		}
		want := 0
		for k := range distinct {
			if model.MatchesAll(matchers, k.Tags) {
				want++
			}
		}
		l := b.reader.Look()
		found := b.lookup(l, store.Selection{Metric: metric, Range: model.TimeRange{StartMS: p.TimeMS, EndMS: p.TimeMS + 1}, Matchers: matchers})
		if len(found) != want || keyspacetest.CountsOf(l.Counts())["partitions_full"] > 0 {
			t.Errorf("%v: %d series, want %d, trace %+v", matchers, len(found), want, keyspacetest.CountsOf(l.Counts()))
		}
	}
}

// TestGivenUp: what is of no use is remembered for a while, in bounds.
func TestGivenUp(t *testing.T) {
	var g givenUp
	now := time.Unix(1_800_000_000, 0)
	a := kindOf("m", []literal{{"a", nil}})
	g.add(a, now)
	for after, want := range map[time.Duration]bool{0: true, scanGivenUp - 1: true, scanGivenUp: false} {
		if g.has(a, now.Add(after)) != want {
			t.Errorf("after %v: %v", after, !want)
		}
	}
	if g.has(kindOf("m", []literal{{"b", nil}}), now) || g.has(kindOf("m", []literal{{"a", nil}, {"b", nil}}), now) {
		t.Error("of other tags too")
	}
	for i := range 2 * maxGivenUp {
		g.add(scanKind{metric: fmt.Sprint(i)}, now)
		if len(g.until) > maxGivenUp {
			t.Fatalf("%d are remembered", len(g.until))
		}
	}
}
