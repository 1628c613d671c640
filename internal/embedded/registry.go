package embedded

import (
	"math"
	"sync"
	"sync/atomic"

	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

// registry knows every series of the store by key and by id. Ids are dense, on
// disk, and never given twice: a file, a log record or a deletion may name a
// series long after it was forgotten. What a forgotten one leaves behind is its
// share of a page (see registryPage), and of one pointer when the whole page is
// forgotten: 0.03 bytes. Two thousand million ids last for a century of 50,000
// new series a day.
type registry struct {
	epoch    atomic.Uint64 // moves when a series is forgotten
	unlogged atomic.Int64  // series that no log record has introduced yet

	mu    sync.RWMutex
	byKey index.Table
	pages []*registryPage
	next  uint32 // the next id to give
}

func newRegistry() *registry {
	r := &registry{byKey: index.NewTable()}
	r.epoch.Store(1)
	return r
}

func (r *registry) lookup(key []byte) (uint32, bool) {
	hash := r.byKey.Hash(key)
	r.mu.RLock()
	id, ok := r.findLocked(hash, key)
	r.mu.RUnlock()
	return id, ok
}

// findLocked returns the id of a key. r.mu must be held.
func (r *registry) findLocked(hash uint64, key []byte) (uint32, bool) {
	return r.byKey.Find(hash, func(id uint32) bool { return r.keyLocked(id) == string(key) })
}

func (r *registry) count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byKey.Len()
}

// create returns the id of a key, given out now if need be.
func (r *registry) create(key string) (uint32, error) {
	hash := r.byKey.Hash([]byte(key))
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.findLocked(hash, []byte(key)); ok {
		return id, nil
	}
	if r.next == math.MaxUint32 {
		return 0, &store.LimitError{Limit: "series ids of a store", Max: math.MaxUint32, What: "create a series"}
	}
	id := r.next
	r.next++
	r.pageLocked(id).set(id%registryPageSize, key, fresh)
	r.byKey.Add(hash, id)
	r.unlogged.Add(1)
	return id, nil
}

// restore puts in a series read from the catalogue or the log. A key that
// another id had before moves to the new one.
func (r *registry) restore(d record.Definition) {
	hash := r.byKey.Hash([]byte(d.Key))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = max(r.next, d.ID+1)
	id, ok := r.findLocked(hash, []byte(d.Key))
	switch {
	case ok && id == d.ID:
		return
	case ok:
		r.byKey.Remove(hash, id)
	}
	r.pageLocked(d.ID).set(d.ID%registryPageSize, d.Key, logged)
	r.byKey.Add(hash, d.ID)
}

// pageLocked returns the page of an id, made if need be. r.mu must be held.
func (r *registry) pageLocked(id uint32) *registryPage {
	at := int(id / registryPageSize)
	for at >= len(r.pages) {
		if n := len(r.pages); n > 0 && r.pages[n-1] != nil {
			r.pages[n-1].pack() // it is full, or as full as it gets
		}
		r.pages = append(r.pages, nil)
	}
	if r.pages[at] == nil {
		r.pages[at] = newRegistryPage()
	}
	return r.pages[at]
}

// placeLocked returns where an id is; p is nil if there is no such series.
// r.mu must be held.
func (r *registry) placeLocked(id uint32) (p *registryPage, slot uint32) {
	at, slot := int(id/registryPageSize), id%registryPageSize
	if at >= len(r.pages) || r.pages[at] == nil || r.pages[at].kinds[slot] == 0 {
		return nil, 0
	}
	return r.pages[at], slot
}

// kindLocked returns the kind of a series, 0 if there is none. r.mu must be
// held.
func (r *registry) kindLocked(id uint32) model.Kind {
	if at := int(id / registryPageSize); at < len(r.pages) && r.pages[at] != nil {
		return r.pages[at].kinds[id%registryPageSize]
	}
	return 0
}

// keyLocked returns the key of a series, "" if there is none. r.mu must be held.
func (r *registry) keyLocked(id uint32) string {
	p, slot := r.placeLocked(id)
	if p == nil {
		return ""
	}
	return p.key(slot)
}

// kinds appends the kind of each sample's series to dst. It reports false when
// a ref means nothing (any more).
func (r *registry) kinds(dst []model.Kind, samples []store.Sample) ([]model.Kind, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i := range samples {
		kind := r.kindLocked(uint32(samples[i].Ref))
		if kind == 0 {
			return dst, false
		}
		dst = append(dst, kind)
	}
	return dst, true
}

// kind returns the kind of a series, 0 if there is none.
func (r *registry) kind(id uint32) model.Kind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.kindLocked(id)
}

// series returns what id stands for.
func (r *registry) series(id uint32) (model.Series, bool) {
	r.mu.RLock()
	key := r.keyLocked(id)
	r.mu.RUnlock()
	if key == "" {
		return model.Series{}, false
	}
	s, err := model.ParseKey(key)
	return s, err == nil // keys are checked where they come in
}

// introduce collects the series of samples that no log record has introduced,
// and marks them introduced. The store's order lock must be held.
func (r *registry) introduce(dst []record.Definition, samples []store.Sample) []record.Definition {
	if r.unlogged.Load() == 0 {
		return dst
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range samples {
		id := uint32(samples[i].Ref)
		p, slot := r.placeLocked(id)
		if p != nil && p.marks[slot] != logged {
			p.marks[slot] = logged
			r.unlogged.Add(-1)
			dst = append(dst, record.Definition{ID: id, Key: p.key(slot)})
		}
	}
	return dst
}

// unused returns the series that were created, but not introduced by a log
// record, before the last call of unused: whoever created them has given up.
func (r *registry) unused() (ids []uint32) {
	if r.unlogged.Load() == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, p := range r.pages {
		if p == nil {
			continue
		}
		for slot, mark := range p.marks {
			switch {
			case p.kinds[slot] == 0 || mark == logged:
			case mark == fresh:
				p.marks[slot] = stale
			default:
				ids = append(ids, uint32(at*registryPageSize+slot))
			}
		}
	}
	return ids
}

// forget removes series. Refs given out before are void from here on.
func (r *registry) forget(ids []uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		p, slot := r.placeLocked(id)
		if p == nil {
			continue
		}
		r.byKey.Remove(r.byKey.Hash([]byte(p.key(slot))), id)
		if p.marks[slot] != logged {
			r.unlogged.Add(-1)
		}
		if p.forget(slot); p.live == 0 {
			r.pages[id/registryPageSize] = nil
		}
	}
	r.epoch.Add(1)
}

// expect says that ids below n were given out.
func (r *registry) expect(n uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = max(r.next, n)
}

// settle packs what restore has left loose.
func (r *registry) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range r.pages {
		if p != nil && i < len(r.pages)-1 {
			p.pack()
		}
	}
}

// decodeSamples decodes the samples of a log record.
func (r *registry) decodeSamples(payload []byte, b *store.Batch) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return record.Samples(payload, r.kindLocked, b)
}

// ids returns all known ids, ascending.
func (r *registry) ids() []uint32 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	ids := make([]uint32, 0, r.byKey.Len())
	for at, p := range r.pages {
		if p == nil {
			continue
		}
		for slot, kind := range p.kinds {
			if kind != 0 {
				ids = append(ids, uint32(at*registryPageSize+slot))
			}
		}
	}
	return ids
}

// nextID returns the id that the next new series gets.
func (r *registry) nextID() uint32 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.next
}
