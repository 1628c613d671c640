package kairos

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
)

// An answerCache keeps answers to single metrics, for requests with cache_time. It is
// bounded in bytes and drops the least recently used answer first. Only its age
// invalidates an answer: that is the meaning of cache_time. Many goroutines may use it.
type answerCache struct {
	max     int64 // bytes, 0 = off
	metrics *collectors.Set
	hits    prometheus.Counter
	misses  prometheus.Counter
	bytes   prometheus.Gauge

	mu      sync.Mutex
	used    int64
	entries map[identity]*list.Element // of *cachedAnswer
	recent  *list.List                 // most recently used first
}

// A cachedAnswer is the object of one metric in the member queries.
type cachedAnswer struct {
	id   identity
	text []byte    // never changed
	at   time.Time // a time before the samples were read
}

// entryBytes is the memory of an entry besides its text.
const entryBytes = 256

// An answer larger than 1/maxCacheShare of the cache is not cached, since it would evict
// too many others.
const maxCacheShare = 4

func newAnswerCache(maxBytes int64) *answerCache {
	set := collectors.Named("varve_kairos_query_cache_")
	return &answerCache{
		max: maxBytes, entries: map[identity]*list.Element{}, recent: list.New(), metrics: set,
		hits:   set.Counter("hits_total", "Metrics of queries with cache_time that the query cache answered."),
		misses: set.Counter("misses_total", "Metrics of queries with cache_time that were computed."),
		bytes:  set.Gauge("bytes", "Memory of the query cache, at most kairos.query_cache."),
	}
}

// get returns an answer that is at most maxAge old, nil if there is none.
func (c *answerCache) get(id identity, now time.Time, maxAge time.Duration) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil {
		c.misses.Inc()
		return nil
	}
	a := e.Value.(*cachedAnswer)
	if age := now.Sub(a.at); age < 0 || age > maxAge {
		c.misses.Inc() // keep it: another query may accept an older answer
		return nil
	}
	c.recent.MoveToFront(e)
	c.hits.Inc()
	return a.text
}

// put caches a copy of a text, unless a younger answer is cached.
func (c *answerCache) put(id identity, at time.Time, parts [][]byte) {
	var size int
	for _, part := range parts {
		size += len(part)
	}
	if int64(size)+entryBytes > c.max/maxCacheShare {
		return
	}
	text := slices.Concat(parts...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[id]; e != nil {
		if e.Value.(*cachedAnswer).at.After(at) {
			return
		}
		c.drop(e)
	}
	c.entries[id] = c.recent.PushFront(&cachedAnswer{id, text, at})
	c.used += int64(len(text)) + entryBytes
	for c.used > c.max {
		c.drop(c.recent.Back())
	}
	c.bytes.Set(float64(c.used))
}

// drop removes an entry. c.mu must be held.
func (c *answerCache) drop(e *list.Element) {
	a := c.recent.Remove(e).(*cachedAnswer)
	delete(c.entries, a.id)
	c.used -= int64(len(a.text)) + entryBytes
}
