package read

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/collectors"
	"varve/internal/model"
)

// A keyList contains the row keys of one row time: all, or those with one tag. It does not
// change after it was loaded.
type keyList struct {
	keys     []rowkey.Key
	bytes    int64     // of memory
	verified bool      // all were in row_keys when the list was loaded
	level    cql.Level // consistency of its reads: Configured or Lasting
	some     bool      // it has only the keys wanted by the lookup that loaded it

	mu    sync.Mutex
	byTag map[string][]int32 // positions of keys, sorted by value, for tags that were requested
}

// keyOverhead is the memory of a row key in addition to the bytes of its tags.
const keyOverhead = 32

func (l *keyList) add(k rowkey.Key, tagBytes int) {
	l.keys = append(l.keys, k)
	l.bytes += int64(tagBytes) + keyOverhead
}

// take adds the keys of an intake with a single harvest.
func (l *keyList) take(in *intake) {
	if in.thin {
		l.keys, l.some = append(l.keys, in.harvests[0].keys...), true
		return
	}
	l.keys = append(l.keys, in.list.keys...)
	l.bytes += in.list.bytes
}

// only returns all wanted keys, without regard to the limit. The result shares no memory with
// l.
func (l *keyList) only(w wish) (keys []rowkey.Key, err error) {
	for _, k := range l.keys {
		wanted, err := w.matches(k)
		if err != nil {
			return nil, err
		}
		if wanted {
			if err := w.holdKey(k); err != nil {
				return nil, err
			}
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// indexFrom is the number of keys from which an index by tag is worthwhile: filtering that many
// takes a millisecond.
const indexFrom = 4096

// matching appends the wanted keys. If there are more than the limit, it may append only some,
// but more than the limit. The result is read-only: without matchers it is the list's own
// slice.
func (l *keyList) matching(dst []rowkey.Key, w wish) ([]rowkey.Key, error) {
	if dst == nil && len(w.matchers) == 0 {
		return l.keys[:len(l.keys):len(l.keys)], nil
	}
	if len(l.keys) >= indexFrom {
		for _, m := range w.matchers {
			if rowkey.IsLiteral(m) {
				return l.matchingByTag(dst, m, w)
			}
		}
	}
	for _, k := range l.keys {
		if w.enough(len(dst)) {
			break
		}
		wanted, err := w.matches(k)
		if err != nil {
			return nil, err
		}
		if wanted {
			dst = append(dst, k)
		}
	}
	return dst, nil
}

func (l *keyList) matchingByTag(dst []rowkey.Key, by model.Matcher, w wish) ([]rowkey.Key, error) {
	places := l.sortedBy(by.Tag)
	valueAt := func(i int) string {
		v, _ := l.keys[places[i]].Tags.Get(by.Tag)
		return v
	}
	for _, v := range rowkey.Distinct(by.Values) {
		first := sort.Search(len(places), func(i int) bool { return valueAt(i) >= v })
		for i := first; i < len(places) && valueAt(i) == v && !w.enough(len(dst)); i++ {
			wanted, err := w.matches(l.keys[places[i]])
			if err != nil {
				return nil, err
			}
			if wanted {
				dst = append(dst, l.keys[places[i]])
			}
		}
	}
	return dst, nil
}

// sortedBy returns the positions of the keys that have a tag, ordered by its value. It builds
// this order when a tag is requested for the first time.
func (l *keyList) sortedBy(tag string) []int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if places, ok := l.byTag[tag]; ok {
		return places
	}
	values := make([]string, len(l.keys))
	var places []int32
	for i, k := range l.keys {
		if v, ok := k.Tags.Get(tag); ok {
			values[i] = v
			places = append(places, int32(i))
		}
	}
	slices.SortFunc(places, func(a, b int32) int { return strings.Compare(values[a], values[b]) })
	if l.byTag == nil {
		l.byTag = map[string][]int32{}
	}
	l.byTag[tag] = places
	return places
}

// A version identifies the state of a partition of row_keys when it was read. If one of its
// fields differs later, row keys were added or removed.
type version struct {
	mtime   cql.UUID // changed by KairosDB; zero if null
	changed cql.UUID // changed by Varve; zero if there is none
}

// A tagPair identifies a list of row keys within a partition: those with the tag or, if it is
// the zero value, all of them. KairosDB does not allow empty names.
type tagPair struct{ tag, value string }

// A postingsCache keeps row keys of partitions between queries. A list is valid while the
// partition's version is the one that was read before the row keys, and until a point in time.
type postingsCache struct {
	*cache[rowkey.Partition, tagPair, *postingEntry]
	now func() time.Time
}

type postingEntry struct {
	list    *keyList
	version version
	began   time.Time // when its loading began
	until   time.Time
}

// postingOverhead is about the memory of a list in the cache, in addition to its row keys and texts.
const postingOverhead = 460

func newPostingsCache(maxBytes int64, now func() time.Time, set *collectors.Set) *postingsCache {
	return &postingsCache{now: now, cache: newCache[rowkey.Partition, tagPair, *postingEntry](maxBytes, set, "postings_cache", cacheHelp{
		hits:    "Lists of row keys that were in the cache and valid.",
		misses:  "Lists of row keys that were not in the cache, or no longer valid.",
		evicted: "Lists of row keys that made room for others.",
		bytes:   "Size of the cache of row keys.",
	})}
}

// get returns a list if it is cached and valid. For lag after its loading began, it is valid
// whatever KairosDB nodes have added since.
func (c *postingsCache) get(p rowkey.Partition, k tagPair, v version, lag time.Duration) *keyList {
	now := c.now()
	e := c.cache.get(p, k, func(e *postingEntry) (use, drop bool) {
		use = e.version == v && now.Before(e.until) || e.version.changed == v.changed && now.Sub(e.began) < lag
		return use, !use
	})
	if e == nil {
		return nil
	}
	return e.list
}

// A loading records when the loading of a list began.
type loading struct {
	at        time.Time
	forgotten uint64 // of cache.begin
}

// begin must be called before a list of p is loaded; its result is passed to put.
func (c *postingsCache) begin(p rowkey.Partition) loading {
	return loading{c.now(), c.cache.begin(p)}
}

// put caches a list that was loaded after version v was read and begin was called.
func (c *postingsCache) put(p rowkey.Partition, k tagPair, l *keyList, v version, until time.Time, since loading) {
	bytes := l.bytes + int64(len(p.Metric)+len(k.tag)+len(k.value)) + postingOverhead
	if len(l.keys) >= indexFrom {
		bytes += int64(len(l.keys)) * 8 // for the orders by tag that may be built
	}
	c.cache.put(p, k, &postingEntry{list: l, version: v, began: since.at, until: until}, bytes, since.forgotten)
}
