package read

import (
	"container/list"
	"hash/maphash"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

// A cache keeps values up to a number of bytes, and then evicts the least recently used ones.
// Each value belongs to a group, whose values forget drops together. A value that is being
// loaded while its group is forgotten is not cached: each group maps to one of many counters,
// which forget increments.
type cache[G, K comparable, V any] struct {
	maxBytes int64

	hits, misses, evicted prometheus.Counter

	mu        sync.Mutex
	values    map[cacheKey[G, K]]*list.Element // of *cached
	groups    map[G]*list.Element              // one value of each group, see cached.next
	recent    list.List                        // of *cached, most recently used first
	bytes     int64
	forgotten [1024]uint64 // how often groups were forgotten, by hash
	seed      maphash.Seed
}

type cacheKey[G, K comparable] struct {
	group G
	key   K
}

// The values of a group are a linked list. Most groups have one value only, for which a map of
// their own would take more memory than all else.
type cached[G, K comparable, V any] struct {
	at         cacheKey[G, K]
	value      V
	bytes      int64
	prev, next *list.Element // in the group
}

// newCache returns a cache whose metrics begin with name. help are their descriptions.
func newCache[G, K comparable, V any](maxBytes int64, set *collectors.Set, name string, help cacheHelp) *cache[G, K, V] {
	c := &cache[G, K, V]{
		maxBytes: maxBytes, seed: maphash.MakeSeed(), values: map[cacheKey[G, K]]*list.Element{}, groups: map[G]*list.Element{},
		hits:    set.Counter(name+"_hits_total", help.hits),
		misses:  set.Counter(name+"_misses_total", help.misses),
		evicted: set.Counter(name+"_evicted_total", help.evicted),
	}
	set.GaugeFunc(name+"_bytes", help.bytes, func() float64 { return float64(c.size()) })
	return c
}

type cacheHelp struct{ hits, misses, evicted, bytes string }

func (c *cache[G, K, V]) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// holds reports whether the cache has any value of a group, valid or not.
func (c *cache[G, K, V]) holds(g G) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[g] != nil
}

// get returns a value, the zero V if there is none that check accepts. check may also have it
// dropped.
func (c *cache[G, K, V]) get(g G, k K, check func(V) (use, drop bool)) (v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.values[cacheKey[G, K]{g, k}]; at != nil {
		found := c.of(at).value
		use, drop := check(found)
		if use {
			c.recent.MoveToFront(at)
			c.hits.Inc()
			return found
		}
		if drop {
			c.removeLocked(at)
		}
	}
	c.misses.Inc()
	return v
}

// begin must be called before a value of a group is loaded; its result is passed to put.
func (c *cache[G, K, V]) begin(g G) (forgotten uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forgotten[c.slot(g)]
}

func (c *cache[G, K, V]) slot(g G) uint64 {
	return maphash.Comparable(c.seed, g) % uint64(len(c.forgotten))
}

// put caches a value of that many bytes, in place of the one under the same key, unless its
// group was forgotten after begin.
func (c *cache[G, K, V]) put(g G, k K, v V, bytes int64, forgotten uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if forgotten != c.forgotten[c.slot(g)] || bytes > c.maxBytes {
		return
	}
	at := cacheKey[G, K]{g, k}
	if before := c.values[at]; before != nil {
		c.removeLocked(before)
	}
	for c.bytes+bytes > c.maxBytes {
		c.removeLocked(c.recent.Back())
		c.evicted.Inc()
	}
	added := &cached[G, K, V]{at: at, value: v, bytes: bytes, next: c.groups[g]}
	e := c.recent.PushFront(added)
	if added.next != nil {
		c.of(added.next).prev = e
	}
	c.values[at], c.groups[g] = e, e
	c.bytes += bytes
}

func (c *cache[G, K, V]) of(e *list.Element) *cached[G, K, V] { return e.Value.(*cached[G, K, V]) }

// forget drops all values of a group.
func (c *cache[G, K, V]) forget(g G) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten[c.slot(g)]++
	for e := c.groups[g]; e != nil; e = c.groups[g] {
		c.removeLocked(e)
	}
}

func (c *cache[G, K, V]) removeLocked(e *list.Element) {
	gone := c.of(e)
	c.recent.Remove(e)
	delete(c.values, gone.at)
	if gone.next != nil {
		c.of(gone.next).prev = gone.prev
	}
	switch {
	case gone.prev != nil:
		c.of(gone.prev).next = gone.next
	case gone.next != nil:
		c.groups[gone.at.group] = gone.next
	default:
		delete(c.groups, gone.at.group)
	}
	c.bytes -= gone.bytes
}
