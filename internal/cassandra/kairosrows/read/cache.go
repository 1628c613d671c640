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
	groups    map[G]map[K]*list.Element // of *cached; no group is empty
	recent    list.List                 // of *cached, most recently used first
	bytes     int64
	forgotten [1024]uint64 // how often groups were forgotten, by hash
	seed      maphash.Seed
}

type cached[G, K comparable, V any] struct {
	group G
	key   K
	value V
	bytes int64
}

// newCache returns a cache whose metrics begin with name. help are their descriptions.
func newCache[G, K comparable, V any](maxBytes int64, set *collectors.Set, name string, help cacheHelp) *cache[G, K, V] {
	c := &cache[G, K, V]{
		maxBytes: maxBytes, seed: maphash.MakeSeed(), groups: map[G]map[K]*list.Element{},
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
	if at := c.groups[g][k]; at != nil {
		found := at.Value.(*cached[G, K, V]).value
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
	if at := c.groups[g][k]; at != nil {
		c.removeLocked(at)
	}
	for c.bytes+bytes > c.maxBytes {
		c.removeLocked(c.recent.Back())
		c.evicted.Inc()
	}
	if c.groups[g] == nil {
		c.groups[g] = map[K]*list.Element{}
	}
	c.groups[g][k] = c.recent.PushFront(&cached[G, K, V]{g, k, v, bytes})
	c.bytes += bytes
}

// forget drops all values of a group.
func (c *cache[G, K, V]) forget(g G) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten[c.slot(g)]++
	for _, at := range c.groups[g] {
		c.removeLocked(at)
	}
}

func (c *cache[G, K, V]) removeLocked(at *list.Element) {
	e := c.recent.Remove(at).(*cached[G, K, V])
	delete(c.groups[e.group], e.key)
	if len(c.groups[e.group]) == 0 {
		delete(c.groups, e.group)
	}
	c.bytes -= e.bytes
}
