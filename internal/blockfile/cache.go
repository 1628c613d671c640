package blockfile

import (
	"container/list"
	"sync"
	"sync/atomic"

	"varve/internal/chunk"
)

const (
	cacheShards = 16

	// pageOverhead is the memory of a cached page besides its bytes: list, map, Page.
	pageOverhead = 256
)

// A Cache keeps verified pages of many files, and the indexes of pages that are
// read again, up to a number of bytes. It drops the least recently used pages.
type Cache struct {
	shards [cacheShards]cacheShard
	Hits   atomic.Int64
	Misses atomic.Int64
}

type cacheShard struct {
	mu       sync.Mutex
	capacity int64
	bytes    int64
	pages    map[pageKey]*list.Element
	recent   *list.List // front = most recently used
}

type pageKey struct {
	file uint64
	page int
}

type cachedPage struct {
	key   pageKey
	page  chunk.Page
	index *chunk.Index // nil until the page is read again
	bytes int64
}

// NewCache returns a cache of a number of bytes; 0 caches nothing. A page larger than a
// sixteenth of that is not cached.
func NewCache(bytes int64) *Cache {
	c := &Cache{}
	for i := range c.shards {
		c.shards[i] = cacheShard{
			capacity: bytes / cacheShards,
			pages:    make(map[pageKey]*list.Element),
			recent:   list.New(),
		}
	}
	return c
}

// Bytes is the memory that the cached pages and their indexes take.
func (c *Cache) Bytes() int64 {
	var n int64
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += s.bytes
		s.mu.Unlock()
	}
	return n
}

func (c *Cache) shard(k pageKey) *cacheShard {
	return &c.shards[(k.file*31+uint64(k.page))%cacheShards]
}

// get returns a page, and its index if it has one.
func (c *Cache) get(file uint64, page int) (p chunk.Page, x *chunk.Index, ok bool) {
	k := pageKey{file, page}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pages[k]
	if !ok {
		c.Misses.Add(1)
		return chunk.Page{}, nil, false
	}
	c.Hits.Add(1)
	s.recent.MoveToFront(e)
	kept := e.Value.(*cachedPage)
	return kept.page, kept.index, true
}

// putIndex adds the index of a cached page, unless both do not fit.
func (c *Cache) putIndex(file uint64, page int, x *chunk.Index) {
	k := pageKey{file, page}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pages[k]
	if !ok {
		return
	}
	kept := e.Value.(*cachedPage)
	if kept.index != nil || kept.bytes+x.Bytes() > s.capacity {
		return
	}
	kept.index = x
	kept.bytes += x.Bytes()
	s.bytes += x.Bytes()
	s.shrink()
}

func (c *Cache) put(file uint64, page int, p chunk.Page, bytes int64) {
	k := pageKey{file, page}
	s := c.shard(k)
	bytes += pageOverhead
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pages[k]; ok || bytes > s.capacity {
		return
	}
	s.pages[k] = s.recent.PushFront(&cachedPage{key: k, page: p, bytes: bytes})
	s.bytes += bytes
	s.shrink()
}

// shrink drops the least recently used pages until the others fit.
func (s *cacheShard) shrink() {
	for s.bytes > s.capacity {
		s.remove(s.recent.Back())
	}
}

func (s *cacheShard) remove(e *list.Element) {
	p := e.Value.(*cachedPage)
	s.recent.Remove(e)
	delete(s.pages, p.key)
	s.bytes -= p.bytes
}

// drop removes the pages of a file.
func (c *Cache) drop(f *File) {
	for i := range f.pages {
		k := pageKey{f.Number, i}
		s := c.shard(k)
		s.mu.Lock()
		if e, ok := s.pages[k]; ok {
			s.remove(e)
		}
		s.mu.Unlock()
	}
}
