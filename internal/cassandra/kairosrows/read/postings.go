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

// A keyList holds the row keys of one row time: all, or those with one tag.
// It does not change after it was loaded.
type keyList struct {
	keys     []rowkey.Key
	bytes    int64     // of memory
	verified bool      // all were in row_keys when the list was loaded
	level    cql.Level // Configured or Lasting: that of its reads
	some     bool      // it has only those that the lookup wants for which it was loaded

	mu    sync.Mutex
	byTag map[string][]int32 // places of keys by value, for tags that were asked for
}

// keyOverhead is what a row key costs beside the bytes of its tags.
const keyOverhead = 32

func (l *keyList) add(k rowkey.Key, tagBytes int) {
	l.keys = append(l.keys, k)
	l.bytes += int64(tagBytes) + keyOverhead
}

// take adds what an intake for one harvest has.
func (l *keyList) take(in *intake) {
	if in.thin {
		l.keys, l.some = append(l.keys, in.harvests[0].keys...), true
		return
	}
	l.keys = append(l.keys, in.list.keys...)
	l.bytes += in.list.bytes
}

// only returns the keys that are wanted, however many. It shares no memory with l.
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

// indexFrom is how many keys are worth an index by tag: filtering so many takes
// a millisecond.
const indexFrom = 4096

// matching appends the keys that are wanted, of too many only so many that these are too
// many. They are not to be changed: without matchers they are those of the list.
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

// sortedBy returns the places of the keys that have a tag, ordered by its value.
// It is made when a tag is asked for the first time.
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

// keyOf reads a row key.
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

// tagsOf reads a frozen map. Maps that are in order, which nearly all are, cost
// one allocation: they are turned into the key of a series, which is parsed.
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

// A version says how a partition of row_keys was when it was looked at: it gained
// or lost row keys if one of the two differs later.
type version struct {
	mtime   cql.UUID // moved by KairosDB; zero if null
	changed cql.UUID // moved by Varve; zero if there is none
}

// A postingKey names what the cache keeps of a partition: the row keys with one
// tag, or with an empty tag name all of them. KairosDB allows no empty names.
type postingKey struct {
	rowkey.Partition
	tag, value string
}

// A postingsCache keeps row keys of partitions between queries, at most so many
// bytes of them. An entry is valid as long as the partition's version is the one
// that was read before the row keys were, and until a time.
type postingsCache struct {
	maxBytes int64
	now      func() time.Time

	mu         sync.Mutex
	partitions map[rowkey.Partition]*cachedPartition
	recent     list.List // of *postingEntry, most recently used first
	bytes      int64
	forgotten  [256]uint64 // times that partitions were forgotten, by hash
	seed       maphash.Seed

	hits, misses, evicted prometheus.Counter
}

type cachedPartition struct {
	lists map[postingKey]*list.Element // of *postingEntry, not empty
	until time.Time                    // the last that any of the lists may be kept
}

type postingEntry struct {
	key     postingKey
	list    *keyList
	version version
	began   time.Time // when its loading did
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

// holds reports whether there is anything of a partition, valid or not.
func (c *postingsCache) holds(p rowkey.Partition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.partitions[p] != nil
}

// believes reports whether there was something of a partition a while ago, for
// as long as anything of it would be kept.
func (c *postingsCache) believes(p rowkey.Partition) bool {
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

// get returns a list if it is there and valid. For lag after its loading began
// it is valid whatever KairosDB nodes have added since. Of an invalid version all lists
// are dropped.
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

// A loading says when the loading of a list began.
type loading struct {
	at        time.Time
	forgotten uint64 // times that its partition had been forgotten
}

// begin returns what put must be given for a list of p that is loaded from now
// on.
func (c *postingsCache) begin(p rowkey.Partition) loading {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return loading{now, c.forgotten[c.slot(p)]}
}

func (c *postingsCache) slot(p rowkey.Partition) uint64 {
	return maphash.Comparable(c.seed, p) % uint64(len(c.forgotten))
}

// put keeps a list that was loaded after version v was read and begin called.
func (c *postingsCache) put(k postingKey, l *keyList, v version, until time.Time, since loading) {
	e := &postingEntry{key: k, list: l, version: v, began: since.at, until: until}
	e.bytes = l.bytes + int64(len(k.Metric)+len(k.tag)+len(k.value)) + postingOverhead
	if len(l.keys) >= indexFrom {
		e.bytes += int64(len(l.keys)) * 8 // of the orders by tag that may be made
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

// forget drops what there is of a partition, and keeps out what is being loaded.
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
