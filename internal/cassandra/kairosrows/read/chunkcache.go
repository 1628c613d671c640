package read

import (
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/chunk"
	"varve/internal/collectors"
	"varve/internal/model"
)

// A chunkCache keeps slices of finished rows as packed chunks, so that reading them again costs
// no statement, and coarse queries are answered from the chunks' statistics.
//
// A row is cached when it is read for the second time, so that a first read is as cheap as
// possible.
//
// Other processes may write into a finished row, or delete from it. Their changes become
// visible when the entry expires, or to a reader that requires a younger entry: see
// Look.chunkAge. An entry expires at its maximum age, or when it has been cached for as long as
// the row had been unchanged when it was read. So if another process is filling in old samples,
// a slice is cached for seconds only. Changes by this process remove the row's entries at once.
type chunkCache struct {
	*cache[string, Form, *chunkEntry] // groups are the keys of rows
	maxAge                            time.Duration
	now                               func() time.Time
	asked                             [8192]atomic.Uint64 // hashes of requested rows; newer ones overwrite older ones
}

// A chunkEntry holds all cells of a row between two columns.
type chunkEntry struct {
	from, to  uint32 // columns, both inclusive
	chunks    []chunk.Entry
	readAt    time.Time
	expiresMS int64 // when the first sample expires, or the slice is too old
}

// entryOverhead is about the memory of an entry and one chunk, in addition to the page.
const (
	entryOverhead = 280
	chunkOverhead = 220
)

func newChunkCache(maxBytes int64, maxAge time.Duration, now func() time.Time, set *collectors.Set) *chunkCache {
	return &chunkCache{maxAge: maxAge, now: now, cache: newCache[string, Form, *chunkEntry](maxBytes, set, "chunk_cache", cacheHelp{
		hits:    "Slices of finished rows that were in the cache of packed chunks.",
		misses:  "Slices of finished rows that were not in the cache of packed chunks.",
		evicted: "Entries that made room for others.",
		bytes:   "Size of the cache of packed chunks.",
	})}
}

// get returns an entry that contains the whole slice and is younger than age, nil if there is
// none.
func (c *chunkCache) get(key []byte, form Form, s slice, age time.Duration) *chunkEntry {
	if c.maxBytes <= 0 || age <= 0 {
		return nil
	}
	now := c.now()
	return c.cache.get(string(key), form, func(e *chunkEntry) (use, drop bool) {
		expired := now.Sub(e.readAt) >= c.maxAge || now.UnixMilli() >= e.expiresMS
		return !expired && e.has(s) && now.Sub(e.readAt) < age, expired
	})
}

// has reports whether the entry contains the whole slice.
func (e *chunkEntry) has(s slice) bool { return e.from <= s.from && s.to <= e.to }

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
	cache   *chunkCache
	key     string
	form    Form
	since   uint64 // of cache.begin
	page    *chunk.PageBuilder
	entry   chunkEntry
	lastMS  int64
	wroteMS int64 // newest cell
	full    bool  // too large to be cached
}

var pageBuilders = sync.Pool{New: func() any { return new(chunk.PageBuilder) }}

// One slice may take at most 1/maxShare of the cache.
const maxShare = 8

// record returns a recorder for a slice, nil if the slice should not be cached.
func (c *chunkCache) record(key []byte, form Form, s slice) *chunkRecorder {
	if c.maxBytes <= 0 || c.maxAge <= 0 || !c.ask(key, form) {
		return nil
	}
	r := &chunkRecorder{
		cache: c, key: string(key), form: form, lastMS: math.MinInt64, wroteMS: math.MinInt64,
		entry: chunkEntry{from: s.from, to: s.to, readAt: c.now(), expiresMS: math.MaxInt64},
	}
	r.since = c.begin(r.key)
	r.page = pageBuilders.Get().(*chunk.PageBuilder)
	r.page.Reset(chunk.Fast)
	return r
}

// ask records that a row is requested, and reports whether it was requested before.
func (c *chunkCache) ask(key []byte, form Form) bool {
	hash := maphash.Bytes(c.seed, key) + uint64(form)
	return c.asked[hash%uint64(len(c.asked))].Swap(hash) == hash
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
	bytes := int64(r.page.Size()+len(r.key)+entryOverhead) + int64(len(e.chunks))*chunkOverhead
	r.cache.put(r.key, r.form, &e, bytes, r.since)
	return nil
}

// drop releases the recorder's memory.
func (r *chunkRecorder) drop() {
	if r.page != nil {
		pageBuilders.Put(r.page)
		r.page = nil
	}
}
