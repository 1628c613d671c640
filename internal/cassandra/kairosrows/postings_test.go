package kairosrows

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
)

func listOf(n int) *keyList {
	l := new(keyList)
	for i := range n {
		l.add(rowKey{model.TypeLong, model.MustTags("a", fmt.Sprint(i%7), "b", fmt.Sprint(i%10))}, 20)
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
		nil, {oneOf("a", "3")}, {oneOf("a", "3", "3", "5", "none")}, {oneOf("none", "3")},
		{oneOf("a", "3"), oneOf("b", "7")}, {{Tag: "b", Patterns: []*model.Pattern{pattern}}, oneOf("a", "1")},
	} {
		var want []rowKey
		for _, k := range l.keys {
			if model.MatchesAll(matchers, k.tags) {
				want = append(want, k)
			}
		}
		for range 2 {
			got := l.matching(nil, matchers)
			order := func(a, b rowKey) int { return a.tags.Compare(b.tags) }
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
	c := newPostingsCache(10_000, clock)
	k := postingKey{partKey{"m", 0}, "host", "a"}
	v := version{mtime: cql.UUID{1}, changed: cql.UUID{2}}
	list := listOf(3)
	put := func() { c.put(k, list, v, now.Add(time.Minute), c.begin(k.partKey)) }

	put()
	if c.get(k, v, 0) != list || !c.holds(k.partKey) {
		t.Error("what was put is not there")
	}
	for name, other := range map[string]version{"mtime": {mtime: cql.UUID{3}, changed: v.changed}, "changed": {mtime: v.mtime, changed: cql.UUID{3}}} {
		put()
		if c.get(k, other, 0) != nil || c.holds(k.partKey) {
			t.Errorf("valid although %s moved", name)
		}
	}
	put()
	now = now.Add(time.Minute)
	if c.get(k, v, 0) != nil {
		t.Error("older than it may be")
	}
	since := c.begin(k.partKey)
	c.forget(k.partKey)
	c.put(k, list, v, now.Add(time.Minute), since)
	if c.holds(k.partKey) {
		t.Error("kept although the partition changed while it was read")
	}
	put()
	c.forget(partKey{"other", 0})
	if c.get(k, v, 0) == nil {
		t.Error("forgotten with another partition")
	}
	for i := range 200 {
		p := partKey{"m", int64(i)}
		c.put(postingKey{partKey: p}, listOf(10), v, now.Add(time.Minute), c.begin(p))
		if c.size() > c.maxBytes {
			t.Fatalf("%d bytes, at most %d", c.size(), c.maxBytes)
		}
	}
	long := partKey{strings.Repeat("m", 1000), 0} // a tenth of the cache
	for i := range 20 {
		long.timeMS = int64(i)
		c.put(postingKey{partKey: long}, listOf(0), v, now.Add(time.Minute), c.begin(long))
	}
	if n := len(c.partitions); n > 10 {
		t.Errorf("%d names of 1,000 bytes are kept in %d", n, c.maxBytes)
	}
	for i := range 200 {
		p := partKey{"m", int64(i)}
		c.put(postingKey{partKey: p}, listOf(10), v, now.Add(time.Minute), c.begin(p))
	}
	if c.get(postingKey{partKey: partKey{"m", 199}}, v, 0) == nil || c.get(postingKey{partKey: partKey{"m", 1}}, v, 0) != nil {
		t.Error("not the least recently used lists made room")
	}
	c.put(postingKey{partKey: partKey{"m", 300}}, listOf(1000), v, now.Add(time.Minute), loading{})
	if c.holds(partKey{"m", 300}) {
		t.Error("kept more than the whole cache may")
	}
}

// TestKairosDBLag: for so long after its loading began a list is good although
// KairosDB nodes have added row keys, but not if Varve nodes have.
func TestKairosDBLag(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := newPostingsCache(10_000, func() time.Time { return now })
	k := postingKey{partKey: partKey{"m", 0}}
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
		since := c.begin(k.partKey)
		c.put(k, listOf(3), v, now.Add(time.Minute), since)
		now = now.Add(test.after)
		if got := c.get(k, test.asked, 5*time.Second) != nil; got != test.want {
			t.Errorf("after %v, %v: %v", test.after, test.asked, got)
		}
	}
	since := c.begin(k.partKey)
	now = now.Add(time.Minute) // while it was loaded
	if c.put(k, listOf(3), v, now, since); c.get(k, moved, 5*time.Second) != nil {
		t.Error("the time counts from when the loading ended")
	}
}

// FuzzTagsOf: the short way of reading tags gives what the long one gives.
func FuzzTagsOf(f *testing.F) {
	for _, tags := range []model.Tags{{}, model.MustTags("host", "a"), model.MustTags("a", "1", "b", "2", "\U0001f600", "x", "\uffee", "y")} {
		f.Add(cql.TagMap{Tags: tags}.Append(nil))
	}
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 1, 'b', 0, 0, 0, 1, 'x', 0, 0, 0, 1, 'a', 0, 0, 0, 1, 'x'})
	f.Add([]byte{0x80, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		want, wantErr := cql.ParseTagMap(raw)
		got, err := new(keyDecoder).tagsOf(raw)
		if (err == nil) != (wantErr == nil) || err == nil && got != want {
			t.Fatalf("%x: %v, %v; want %v, %v", raw, got, err, want, wantErr)
		}
	})
}
