package kairosrows

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"varve/internal/model"
)

// forever is the expiry of what has no time-to-live.
const forever = math.MaxInt64

// A rowID stands for a row key, or for a partition of row_keys, in an
// indexCache: 128 bits of a hash that is seeded differently in each process. That two
// of a million rows share one has a chance of 1e-27.
type rowID [2]uint64

// An idHash makes rowIDs. It is used by one goroutine.
type idHash struct {
	seeds [2]maphash.Seed
	key   []byte
}

func (h *idHash) row(s model.Series, rowTimeMS int64) rowID {
	h.key = s.AppendKey(h.key[:0])
	return h.sum(rowTimeMS)
}

func (h *idHash) partition(metric string, rowTimeMS int64) rowID {
	h.key = append(append(h.key[:0], 0xff), metric...) // no kind is 0xff
	return h.sum(rowTimeMS)
}

func (h *idHash) sum(rowTimeMS int64) rowID {
	for shift := 0; shift < 64; shift += 8 {
		h.key = append(h.key, byte(uint64(rowTimeMS)>>shift))
	}
	return rowID{maphash.Bytes(h.seeds[0], h.key), maphash.Bytes(h.seeds[1], h.key)}
}

// indexed is what the cache knows of index rows that this process wrote.
type indexed struct {
	expirySec int64 // Unix seconds from which they are gone, or forever
	atSec     int64 // when they were written
}

// indexedPart is the same of what all row keys of a metric and row time share.
type indexedPart struct {
	indexed
	changedMS int64 // write timestamp of varve_row_state.changed as last seen
	foreign   int64 // Unix second at which it was seen that another node had moved it
}

// indexCache remembers which index rows were written, so that they are written
// once and not with every sample. It is bounded: entries are kept in two
// halves; when the young one is full it becomes the old one, and what was the
// old one, entries that were not used for at least half of the cache's size, is
// forgotten. Forgetting costs a repeated write, never a sample.
//
// The epoch counts the times that all was forgotten because of a delete. Who
// writes samples relying on an entry looks at the epoch before and after; if it
// moved, the entry may have been deleted below him, and he starts again. See
// Writer.
type indexCache[V any] struct {
	max int // entries

	mu         sync.Mutex
	young, old map[rowID]V
	epoch      uint64
	evictions  uint64
}

func newIndexCache[V any](max int) *indexCache[V] {
	return &indexCache[V]{max: max, young: make(map[rowID]V)}
}

// get returns what is known of a row.
func (c *indexCache[V]) get(id rowID) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.young[id]
	if ok {
		return e, true
	}
	if e, ok = c.old[id]; ok {
		c.insertLocked(id, e)
	}
	return e, ok
}

// put remembers index rows that were written by one who began at epoch.
func (c *indexCache[V]) put(epoch uint64, id rowID, e V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == epoch {
		c.insertLocked(id, e)
	}
}

func (c *indexCache[V]) insertLocked(id rowID, e V) {
	if len(c.young) >= max(1, c.max/2) {
		c.evictions += uint64(len(c.old))
		c.old, c.young = c.young, make(map[rowID]V)
	}
	delete(c.old, id)
	c.young[id] = e
}

// clear forgets everything.
func (c *indexCache[V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.young, c.old = make(map[rowID]V), nil
}

func (c *indexCache[V]) now() (epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

func (c *indexCache[V]) size() (entries int, evictions uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.young) + len(c.old), c.evictions
}

// age is how long ago the rows were written. A clock that was set back makes
// them old.
func (e indexed) age(now time.Time) time.Duration {
	d := now.Unix() - e.atSec
	if d < 0 {
		return math.MaxInt64
	}
	return time.Duration(d) * time.Second
}
