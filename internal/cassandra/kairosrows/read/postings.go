package read

import (
	"container/list"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// A keyDecoder reads row keys of tables. It is used by one goroutine.
type keyDecoder struct {
	types map[string]model.Type
	buf   []byte
}

// keyOf decodes a row key.
func (d *keyDecoder) keyOf(name, rawTags []byte) (rowkey.Key, error) {
	tags, err := d.tagsOf(rawTags)
	if err != nil {
		return rowkey.Key{}, fmt.Errorf("row key of type %s: %w", name, err)
	}
	return rowkey.Key{Type: d.typeOf(name), Tags: tags}, nil
}

// typeOf returns the type of a name, without allocating for the usual ones.
func (d *keyDecoder) typeOf(name []byte) model.Type {
	if t, ok := d.types[string(name)]; ok {
		return t
	}
	if d.types == nil {
		d.types = map[string]model.Type{}
	}
	t := model.Type(name)
	d.types[string(t)] = t
	return t
}

// tagsOf decodes a frozen map. A sorted map, which nearly all are, needs one allocation: it is
// converted to the key of a series, which is parsed.
func (d *keyDecoder) tagsOf(raw []byte) (model.Tags, error) {
	d.buf = append(d.buf[:0], byte(model.Null), 0) // no metric
	if d.appendTags(raw) {
		if s, err := model.ParseKey(string(d.buf)); err == nil {
			return s.Tags, nil
		}
	}
	return cql.ParseTagMap(raw)
}

// appendTags appends the tags of a map in the form of a series key.
func (d *keyDecoder) appendTags(raw []byte) bool {
	if len(raw) < 4 {
		return false
	}
	texts := 2 * int(int32(binary.BigEndian.Uint32(raw)))
	raw = raw[4:]
	for range texts {
		if len(raw) < 4 {
			return false
		}
		n := int(int32(binary.BigEndian.Uint32(raw)))
		if n < 0 || n > len(raw)-4 {
			return false
		}
		d.buf = append(binary.AppendUvarint(d.buf, uint64(n)), raw[4:4+n]...)
		raw = raw[4+n:]
	}
	return texts >= 0 && len(raw) == 0
}

// A version identifies the state of a partition of row_keys when it was read. If one of its
// fields differs later, row keys were added or removed.
type version struct {
	mtime   cql.UUID // changed by KairosDB; zero if null
	changed cql.UUID // changed by Varve; zero if there is none
}

// A postingKey identifies a list in the cache: the row keys of a partition with one tag or, if
// the tag name is empty, all of them. KairosDB does not allow empty names.
type postingKey struct {
	rowkey.Partition
	tag, value string
}

// A postingsCache keeps row keys of partitions between queries, up to a number of bytes. An
// entry is valid while the partition's version is the one that was read before the row keys,
// and until a point in time.
type postingsCache struct {
	maxBytes int64
	now      func() time.Time

	mu         sync.Mutex
	partitions map[rowkey.Partition]*cachedPartition
	recent     list.List // of *postingEntry, most recently used first
	bytes      int64
	forgotten  [256]uint64 // how often partitions were forgotten, by hash
	seed       maphash.Seed

	hits, misses, evicted prometheus.Counter
}

type cachedPartition struct {
	lists map[postingKey]*list.Element // of *postingEntry, not empty
	until time.Time                    // the latest time until which any of the lists may be kept
}

type postingEntry struct {
	key     postingKey
	list    *keyList
	version version
	began   time.Time // when its loading began
	until   time.Time
	bytes   int64
}

const postingOverhead = 250

func newPostingsCache(maxBytes int64, now func() time.Time, set *collectors.Set) *postingsCache {
	c := &postingsCache{
		maxBytes: maxBytes, now: now, seed: maphash.MakeSeed(), partitions: map[rowkey.Partition]*cachedPartition{},
		hits:    set.Counter("postings_cache_hits_total", "Lists of row keys that were in the cache and valid."),
		misses:  set.Counter("postings_cache_misses_total", "Lists of row keys that were not in the cache, or no longer valid."),
		evicted: set.Counter("postings_cache_evicted_total", "Lists of row keys that made room for others."),
	}
	set.GaugeFunc("postings_cache_bytes", "Size of the cache of row keys.", func() float64 { return float64(c.size()) })
	return c
}

func (c *postingsCache) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// holds reports whether the cache has any list of a partition, valid or not.
func (c *postingsCache) holds(p rowkey.Partition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.partitions[p] != nil
}

// hadRecently reports whether the cache has had a list of a partition recently, within the time
// for which lists of the partition would be kept.
func (c *postingsCache) hadRecently(p rowkey.Partition) bool {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.partitions[p]
	return of != nil && now.Before(of.until)
}

func (c *postingsCache) atLocked(k postingKey) *list.Element {
	if of := c.partitions[k.Partition]; of != nil {
		return of.lists[k]
	}
	return nil
}

// get returns a list if it is cached and valid. For lag after its loading began, it is valid
// whatever KairosDB nodes have added since. If the version is invalid, get drops all lists of
// the partition.
func (c *postingsCache) get(k postingKey, v version, lag time.Duration) *keyList {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.atLocked(k); at != nil {
		e := at.Value.(*postingEntry)
		if e.version == v && now.Before(e.until) || e.version.changed == v.changed && now.Sub(e.began) < lag {
			c.recent.MoveToFront(at)
			c.hits.Inc()
			return e.list
		}
		c.removeLocked(at)
	}
	c.misses.Inc()
	return nil
}

// A loading records when the loading of a list began.
type loading struct {
	at        time.Time
	forgotten uint64 // how often its partition had been forgotten by then
}

// begin must be called before a list of p is loaded; its result is passed to put.
func (c *postingsCache) begin(p rowkey.Partition) loading {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return loading{now, c.forgotten[c.slot(p)]}
}

func (c *postingsCache) slot(p rowkey.Partition) uint64 {
	return maphash.Comparable(c.seed, p) % uint64(len(c.forgotten))
}

// put caches a list that was loaded after version v was read and begin was called.
func (c *postingsCache) put(k postingKey, l *keyList, v version, until time.Time, since loading) {
	e := &postingEntry{key: k, list: l, version: v, began: since.at, until: until}
	e.bytes = l.bytes + int64(len(k.Metric)+len(k.tag)+len(k.value)) + postingOverhead
	if len(l.keys) >= indexFrom {
		e.bytes += int64(len(l.keys)) * 8 // for the orders by tag that may be built
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if since.forgotten != c.forgotten[c.slot(k.Partition)] || e.bytes > c.maxBytes {
		return
	}
	if at := c.atLocked(k); at != nil {
		c.removeLocked(at)
	}
	for c.bytes+e.bytes > c.maxBytes {
		c.removeLocked(c.recent.Back())
		c.evicted.Inc()
	}
	of := c.partitions[k.Partition]
	if of == nil {
		of = &cachedPartition{lists: map[postingKey]*list.Element{}}
		c.partitions[k.Partition] = of
	}
	of.lists[k] = c.recent.PushFront(e)
	if until.After(of.until) {
		of.until = until
	}
	c.bytes += e.bytes
}

// forget drops all lists of a partition, and keeps lists that are being loaded from being
// cached.
func (c *postingsCache) forget(p rowkey.Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten[c.slot(p)]++
	if of := c.partitions[p]; of != nil {
		for _, at := range of.lists {
			c.removeLocked(at)
		}
	}
}

func (c *postingsCache) removeLocked(at *list.Element) {
	e := c.recent.Remove(at).(*postingEntry)
	of := c.partitions[e.key.Partition]
	delete(of.lists, e.key)
	if len(of.lists) == 0 {
		delete(c.partitions, e.key.Partition)
	}
	c.bytes -= e.bytes
}
