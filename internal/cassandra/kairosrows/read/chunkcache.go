package read

import (
	"container/list"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/chunk"
	"varve/internal/collectors"
	"varve/internal/model"
)

// A chunkCache keeps slices of finished rows as packed chunks, so that reading
// them again costs no statement, and coarse queries are answered from the
// chunks' statistics.
//
// A row is cached when it is read for the second time, so that a first read is as cheap as
// possible.
//
// Other processes may write into a finished row, or delete from it. Their changes become
// visible when the entry expires, or to a reader that requires a younger entry: see
// Look.chunkAge. An entry expires at its maximum age, or when it has been cached for as long as
// the row had been unchanged when it was read. So if another process is filling in old samples,
// a slice is cached for seconds only. Changes by this process remove the row's entries at once,
// and keep a slice that is being read at that moment from being cached: each row maps to one of
// many generation numbers, which forget increments.
type chunkCache struct {
	maxBytes int64
	maxAge   time.Duration
	now      func() time.Time
	seed     maphash.Seed

	hits, misses, evicted prometheus.Counter

	mu          sync.Mutex
	entries     map[string]*list.Element // of *chunkEntry
	recent      list.List                // most recently used first
	bytes       int64
	generations [1024]uint64
	asked       [8192]uint64 // hashes of requested rows; newer ones overwrite older ones
}

// A chunkEntry holds all cells of a row between two columns.
type chunkEntry struct {
	key       string
	from, to  uint32 // columns, both inclusive
	chunks    []chunk.Entry
	bytes     int64
	readAt    time.Time
	expiresMS int64 // when the first sample expires, or the slice is too old
}

// entryOverhead is about the memory of an entry and one chunk, in addition to the page.
const (
	entryOverhead = 200
	chunkOverhead = 220
)

func newChunkCache(maxBytes int64, maxAge time.Duration, now func() time.Time, set *collectors.Set) *chunkCache {
	c := &chunkCache{
		maxBytes: maxBytes, maxAge: maxAge, now: now, seed: maphash.MakeSeed(), entries: map[string]*list.Element{},
		hits:    set.Counter("chunk_cache_hits_total", "Slices of finished rows that were in the cache of packed chunks."),
		misses:  set.Counter("chunk_cache_misses_total", "Slices of finished rows that were not in the cache of packed chunks."),
		evicted: set.Counter("chunk_cache_evicted_total", "Entries that made room for others."),
	}
	set.GaugeFunc("chunk_cache_bytes", "Size of the cache of packed chunks.", func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.bytes)
	})
	return c
}

// cacheKey identifies a row, or one half of a legacy row.
func cacheKey(key []byte, f Form) string { return string(append(key[:len(key):len(key)], byte(f))) }

// get returns an entry that contains the whole slice and is younger than age, nil if there is
// none.
func (c *chunkCache) get(key string, s slice, age time.Duration) *chunkEntry {
	if c.maxBytes <= 0 || age <= 0 {
		return nil
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.entries[key]
	if at != nil {
		e := at.Value.(*chunkEntry)
		switch {
		case c.expired(e, now):
			c.removeLocked(at)
		case e.has(s) && now.Sub(e.readAt) < age:
			c.recent.MoveToFront(at)
			c.hits.Inc()
			return e
		}
	}
	c.misses.Inc()
	return nil
}

// expired reports whether an entry may no longer be used.
func (c *chunkCache) expired(e *chunkEntry, now time.Time) bool {
	return now.Sub(e.readAt) >= c.maxAge || now.UnixMilli() >= e.expiresMS
}

// has reports whether the entry contains the whole slice.
func (e *chunkEntry) has(s slice) bool { return e.from <= s.from && s.to <= e.to }

func (c *chunkCache) removeLocked(at *list.Element) {
	e := c.recent.Remove(at).(*chunkEntry)
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}

// forget removes the row with the given key.
func (c *chunkCache) forget(key []byte) {
	if c.maxBytes <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for form := Typed; form <= LegacyDouble; form++ {
		k := cacheKey(key, form)
		c.generations[c.slot(k)]++
		if at := c.entries[k]; at != nil {
			c.removeLocked(at)
		}
	}
}

func (c *chunkCache) slot(key string) uint64 {
	return maphash.String(c.seed, key) % uint64(len(c.generations))
}

// in returns the chunks with samples in r, in reading order.
func (e *chunkEntry) in(r model.TimeRange, descending bool) []chunk.Entry {
	var in []chunk.Entry
	for i := range e.chunks {
		if (model.TimeRange{StartMS: e.chunks[i].FirstMS, EndMS: e.chunks[i].LastMS}).Overlaps(r) {
			in = append(in, e.chunks[i])
		}
	}
	if descending {
		slices.Reverse(in)
	}
	return in
}

// A chunkRecorder packs a slice while it is read, in ascending order.
type chunkRecorder struct {
	cache      *chunkCache
	page       *chunk.PageBuilder
	entry      chunkEntry
	slot       uint64
	generation uint64
	lastMS     int64
	wroteMS    int64 // newest cell
	full       bool  // too large to be cached
}

var pageBuilders = sync.Pool{New: func() any { return new(chunk.PageBuilder) }}

// One slice may take at most 1/maxShare of the cache.
const maxShare = 8

// record returns a recorder for a slice, nil if the slice should not be cached.
func (c *chunkCache) record(key string, s slice) *chunkRecorder {
	if c.maxBytes <= 0 || c.maxAge <= 0 {
		return nil
	}
	now, slot := c.now(), c.slot(key)
	c.mu.Lock()
	again, generation := c.askLocked(key), c.generations[slot]
	c.mu.Unlock()
	if !again {
		return nil
	}
	r := &chunkRecorder{
		cache: c, slot: slot, generation: generation, lastMS: math.MinInt64, wroteMS: math.MinInt64,
		entry: chunkEntry{key: key, from: s.from, to: s.to, readAt: now, expiresMS: math.MaxInt64},
	}
	r.page = pageBuilders.Get().(*chunk.PageBuilder)
	r.page.Reset(chunk.Fast)
	return r
}

// askLocked records that a row is requested, and reports whether it was requested before.
func (c *chunkCache) askLocked(key string) bool {
	hash := maphash.String(c.seed, key)
	at := &c.asked[hash%uint64(len(c.asked))]
	again := *at == hash
	*at = hash
	return again
}

// usualStamp is an upper bound for write timestamps in milliseconds, as KairosDB and Varve set
// them. Timestamps set by nodes or other clients are in microseconds.
const usualStamp = 100_000_000_000_000

// cell records the remaining life of a cell in seconds, nil if unlimited, and its write
// timestamp.
func (r *chunkRecorder) cell(ttl *int32, stamp int64) {
	if ttl != nil {
		r.entry.expiresMS = min(r.entry.expiresMS, r.entry.readAt.UnixMilli()+int64(*ttl)*1000)
	}
	if stamp > usualStamp {
		stamp /= 1000
	}
	r.wroteMS = max(r.wroteMS, stamp)
}

// add packs samples.
func (r *chunkRecorder) add(k model.Kind, cols *model.Columns) {
	n := cols.Len()
	if n == 0 || r.full {
		return
	}
	if int64(r.page.Size()) > r.cache.maxBytes/maxShare || cols.Times[0] <= r.lastMS {
		r.full = true // rows with cells out of order are rare, and not cached
		return
	}
	r.page.Add(0, k, cols, 0, n)
	r.lastMS = cols.Times[n-1]
}

// finish puts the slice into the cache.
func (r *chunkRecorder) finish() error {
	defer r.drop()
	quietMS := r.entry.readAt.UnixMilli() - r.wroteMS
	if r.full || r.page.Entries() == 0 || quietMS <= 0 {
		return nil
	}
	e := r.entry
	e.expiresMS = min(e.expiresMS, e.readAt.UnixMilli()+quietMS)
	page, err := chunk.OpenPage(r.page.Finish(nil))
	if err != nil {
		return err
	}
	it := page.Iter()
	var part chunk.Entry
	for it.Next(&part) {
		e.chunks = append(e.chunks, part)
	}
	if err := it.Err(); err != nil {
		return err
	}
	e.bytes = int64(r.page.Size()+len(e.key)+entryOverhead) + int64(len(e.chunks))*chunkOverhead
	r.cache.put(&e, r.slot, r.generation)
	return nil
}

// drop releases the recorder's memory.
func (r *chunkRecorder) drop() {
	if r.page != nil {
		pageBuilders.Put(r.page)
		r.page = nil
	}
}

// put caches an entry, unless its row was changed while it was read, or a larger entry is
// already cached.
func (c *chunkCache) put(e *chunkEntry, slot, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generations[slot] != generation || e.bytes > c.maxBytes {
		return
	}
	if at := c.entries[e.key]; at != nil {
		c.removeLocked(at)
	}
	for c.bytes+e.bytes > c.maxBytes {
		c.removeLocked(c.recent.Back())
		c.evicted.Inc()
	}
	c.entries[e.key] = c.recent.PushFront(e)
	c.bytes += e.bytes
}
