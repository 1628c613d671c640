package read

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/collectors"
	"varve/internal/model"
	"varve/internal/store"
)

func listOf(n int) *keyList {
	l := new(keyList)
	for i := range n {
		l.add(rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("a", fmt.Sprint(i%7), "b", fmt.Sprint(i%10))}, 20)
	}
	return l
}

// TestMatching: a long list, which is ordered by tag, gives what a scan gives.
func TestMatching(t *testing.T) {
	l := listOf(indexFrom)
	pattern, err := model.NewPattern("[23]")
	if err != nil {
		t.Fatal(err)
	}
	for _, matchers := range [][]model.Matcher{
		nil, {keyspacetest.OneOf("a", "3")}, {keyspacetest.OneOf("a", "3", "3", "5", "none")}, {keyspacetest.OneOf("none", "3")},
		{keyspacetest.OneOf("a", "3"), keyspacetest.OneOf("b", "7")}, {{Tag: "b", Patterns: []*model.Pattern{pattern}}, keyspacetest.OneOf("a", "1")},
	} {
		var want []rowkey.Key
		for _, k := range l.keys {
			if model.MatchesAll(matchers, k.Tags) {
				want = append(want, k)
			}
		}
		for range 2 {
			got, err := l.matching(nil, wish{matchers: matchers, filter: model.NewFilter(matchers), limit: math.MaxInt})
			if err != nil {
				t.Fatal(err)
			}
			order := func(a, b rowkey.Key) int { return a.Tags.Compare(b.Tags) }
			slices.SortFunc(got, order)
			slices.SortFunc(want, order)
			if !slices.Equal(got, want) {
				t.Errorf("%v: %d keys, want %d", matchers, len(got), len(want))
			}
		}
	}
}

// TestPostingsCache: a list is given back while version and time are right, and
// only if nothing was forgotten while it was loaded; all stays within the bound.
func TestPostingsCache(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	c := newPostingsCache(10_000, clock, collectors.Named(""))
	p, k := rowkey.Partition{Metric: "m", TimeMS: 0}, tagPair{"host", "a"}
	v := version{mtime: cql.UUID{1}, changed: cql.UUID{2}}
	list := listOf(3)
	put := func() { c.put(p, k, list, v, now.Add(time.Minute), c.begin(p)) }

	put()
	if c.get(p, k, v, 0) != list || !c.holds(p) {
		t.Error("what was put is not there")
	}
	for name, other := range map[string]version{"mtime": {mtime: cql.UUID{3}, changed: v.changed}, "changed": {mtime: v.mtime, changed: cql.UUID{3}}} {
		put()
		if c.get(p, k, other, 0) != nil || c.holds(p) {
			t.Errorf("valid although %s moved", name)
		}
	}
	put()
	now = now.Add(time.Minute)
	if c.get(p, k, v, 0) != nil {
		t.Error("older than it may be")
	}
	since := c.begin(p)
	c.forget(p)
	c.put(p, k, list, v, now.Add(time.Minute), since)
	if c.holds(p) {
		t.Error("kept although the partition changed while it was read")
	}
	put()
	c.forget(rowkey.Partition{Metric: "other", TimeMS: 0})
	if c.get(p, k, v, 0) == nil {
		t.Error("forgotten with another partition")
	}
	for i := range 200 {
		p := rowkey.Partition{Metric: "m", TimeMS: int64(i)}
		c.put(p, tagPair{}, listOf(10), v, now.Add(time.Minute), c.begin(p))
		if c.size() > c.maxBytes {
			t.Fatalf("%d bytes, at most %d", c.size(), c.maxBytes)
		}
	}
	long := rowkey.Partition{Metric: strings.Repeat("m", 1000), TimeMS: 0} // a tenth of the cache
	for i := range 20 {
		long.TimeMS = int64(i)
		c.put(long, tagPair{}, listOf(0), v, now.Add(time.Minute), c.begin(long))
	}
	if n := len(c.groups); n > 10 {
		t.Errorf("%d names of 1,000 bytes are kept in %d", n, c.maxBytes)
	}
	for i := range 200 {
		p := rowkey.Partition{Metric: "m", TimeMS: int64(i)}
		c.put(p, tagPair{}, listOf(10), v, now.Add(time.Minute), c.begin(p))
	}
	if c.get(rowkey.Partition{Metric: "m", TimeMS: 199}, tagPair{}, v, 0) == nil || c.get(rowkey.Partition{Metric: "m", TimeMS: 1}, tagPair{}, v, 0) != nil {
		t.Error("not the least recently used lists made room")
	}
	c.put(rowkey.Partition{Metric: "m", TimeMS: 300}, tagPair{}, listOf(1000), v, now.Add(time.Minute), loading{})
	if c.holds(rowkey.Partition{Metric: "m", TimeMS: 300}) {
		t.Error("kept more than the whole cache may")
	}
}

// TestKairosDBLag: for so long after its loading began a list is good although
// KairosDB nodes have added row keys, but not if Varve nodes have.
func TestKairosDBLag(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := newPostingsCache(10_000, func() time.Time { return now }, collectors.Named(""))
	p := rowkey.Partition{Metric: "m", TimeMS: 0}
	v := version{mtime: cql.UUID{1}, changed: cql.UUID{2}}
	moved, changed := version{cql.UUID{7}, v.changed}, version{v.mtime, cql.UUID{7}}
	for _, test := range []struct {
		after time.Duration
		asked version
		want  bool
	}{
		{0, v, true}, {0, moved, true}, {4 * time.Second, moved, true}, {5 * time.Second, moved, false},
		{5 * time.Second, v, true}, {time.Second, changed, false}, {time.Minute, v, false},
	} {
		since := c.begin(p)
		c.put(p, tagPair{}, listOf(3), v, now.Add(time.Minute), since)
		now = now.Add(test.after)
		if got := c.get(p, tagPair{}, test.asked, 5*time.Second) != nil; got != test.want {
			t.Errorf("after %v, %v: %v", test.after, test.asked, got)
		}
	}
	since := c.begin(p)
	now = now.Add(time.Minute) // while it was loaded
	if c.put(p, tagPair{}, listOf(3), v, now, since); c.get(p, tagPair{}, moved, 5*time.Second) != nil {
		t.Error("the time counts from when the loading ended")
	}
}

// Comparing row keys with patterns tells of each, and ends when it is not to go on: in a list that is
// kept, also by a tag, and while row keys are read. Without patterns nobody is told.
func TestPatternsTellOfTheirWork(t *testing.T) {
	l := &keyList{}
	for i := range 2 * indexFrom {
		l.add(rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("a", "1", "b", fmt.Sprint(i))}, 10)
	}
	p, err := model.NewPattern("[0-9]+7")
	if err != nil {
		t.Fatal(err)
	}
	pattern, literal := model.Matcher{Tag: "b", Patterns: []*model.Pattern{p}}, keyspacetest.OneOf("a", "1")
	enough := errors.New("enough")
	for name, compare := range map[string]func(w wish) error{
		"kept": func(w wish) error { _, err := l.matching(nil, w); return err },
		"read": func(w wish) error {
			h := newHarvest(w)
			for _, k := range l.keys {
				if err := h.see(k, true); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		for _, matchers := range [][]model.Matcher{{pattern}, {literal, pattern}} {
			calls := 0
			sel := store.Selection{Matchers: matchers, Tick: func(work int) error {
				if calls++; calls == 1000 || work < 256 {
					return enough
				}
				return nil
			}}
			if err := compare(newWish(t.Context(), sel, math.MaxInt, false)); err != enough || calls != 1000 {
				t.Errorf("%s: ends with %v after %d calls", name, err, calls)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			sel.Tick = nil
			if err := compare(newWish(ctx, sel, math.MaxInt, false)); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: goes on after its context: %v", name, err)
			}
		}
		calls := 0
		sel := store.Selection{Matchers: []model.Matcher{literal}, Tick: func(int) error { calls++; return nil }}
		if err := compare(newWish(t.Context(), sel, math.MaxInt, false)); err != nil || calls > 0 {
			t.Errorf("%s: %v, told %d times without a pattern", name, err, calls)
		}
	}
}
