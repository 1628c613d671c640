package embedded

import (
	"math"
	"sync"
	"sync/atomic"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

// registry knows every series of the store by key and by id. Ids are dense, are
// never reused while any file may hold samples of them, and are on disk.
type registry struct {
	epoch    atomic.Uint64 // moves when a series is forgotten
	unlogged atomic.Int64  // series that no log record has introduced yet

	mu    sync.RWMutex
	byKey map[string]uint32
	pages []*registryPage
	next  uint32 // the next id to give
}

const registryPageSize = 1024

type registryPage [registryPageSize]seriesEntry

type seriesEntry struct {
	key    string
	kind   model.Kind // 0 = no such series
	logged bool       // written under the store's order lock
}

func newRegistry() *registry {
	r := &registry{byKey: make(map[string]uint32)}
	r.epoch.Store(1)
	return r
}

func (r *registry) lookup(key []byte) (uint32, bool) {
	r.mu.RLock()
	id, ok := r.byKey[string(key)]
	r.mu.RUnlock()
	return id, ok
}

func (r *registry) count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.byKey)
}

// create returns the id of a key, given out now if need be.
func (r *registry) create(key string) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.byKey[key]; ok {
		return id, nil
	}
	if r.next == math.MaxUint32 {
		return 0, &store.LimitError{Limit: "series ids of a store", Max: math.MaxUint32, What: "create a series"}
	}
	id := r.next
	r.next++
	*r.slotLocked(id) = seriesEntry{key: key, kind: model.Kind(key[0])}
	r.byKey[key] = id
	r.unlogged.Add(1)
	return id, nil
}

// restore puts in a series read from the catalogue or the log. A key that
// another id had before moves to the new one.
func (r *registry) restore(d record.Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = max(r.next, d.ID+1)
	*r.slotLocked(d.ID) = seriesEntry{key: d.Key, kind: model.Kind(d.Key[0]), logged: true}
	r.byKey[d.Key] = d.ID
}

func (r *registry) slotLocked(id uint32) *seriesEntry {
	for int(id/registryPageSize) >= len(r.pages) {
		r.pages = append(r.pages, nil)
	}
	p := &r.pages[id/registryPageSize]
	if *p == nil {
		*p = new(registryPage)
	}
	return &(*p)[id%registryPageSize]
}

// entryLocked returns the entry of a known series, else nil. r.mu must be held.
func (r *registry) entryLocked(id uint32) *seriesEntry {
	if int(id/registryPageSize) >= len(r.pages) || r.pages[id/registryPageSize] == nil {
		return nil
	}
	e := &r.pages[id/registryPageSize][id%registryPageSize]
	if e.kind == 0 {
		return nil
	}
	return e
}

// kinds appends the kind of each sample's series to dst. It reports false when
// a ref means nothing (any more).
func (r *registry) kinds(dst []model.Kind, samples []store.Sample) ([]model.Kind, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i := range samples {
		e := r.entryLocked(uint32(samples[i].Ref))
		if e == nil {
			return dst, false
		}
		dst = append(dst, e.kind)
	}
	return dst, true
}

// kind returns the kind of a series, 0 if there is none.
func (r *registry) kind(id uint32) model.Kind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e := r.entryLocked(id); e != nil {
		return e.kind
	}
	return 0
}

// series returns what id stands for.
func (r *registry) series(id uint32) (model.Series, bool) {
	r.mu.RLock()
	e := r.entryLocked(id)
	if e == nil {
		r.mu.RUnlock()
		return model.Series{}, false
	}
	key := e.key
	r.mu.RUnlock()
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
		e := r.entryLocked(uint32(samples[i].Ref))
		if e != nil && !e.logged {
			e.logged = true
			r.unlogged.Add(-1)
			dst = append(dst, record.Definition{ID: uint32(samples[i].Ref), Key: e.key})
		}
	}
	return dst
}

// forget removes series. Refs given out before are void from here on.
func (r *registry) forget(ids []uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		e := r.entryLocked(id)
		if e == nil {
			continue
		}
		if r.byKey[e.key] == id {
			delete(r.byKey, e.key)
		}
		if !e.logged {
			r.unlogged.Add(-1)
		}
		*e = seriesEntry{}
	}
	r.epoch.Add(1)
}

// expect makes room for n series.
func (r *registry) expect(n uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = max(r.next, n)
	r.byKey = make(map[string]uint32, min(n, 1<<24))
}

// decodeSamples decodes the samples of a log record.
func (r *registry) decodeSamples(payload []byte, b *store.Batch) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return record.Samples(payload, func(id uint32) model.Kind {
		if e := r.entryLocked(id); e != nil {
			return e.kind
		}
		return 0
	}, b)
}

// ids returns all known ids, ascending.
func (r *registry) ids() []uint32 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	ids := make([]uint32, 0, len(r.byKey))
	for id := range r.next {
		if r.entryLocked(id) != nil {
			ids = append(ids, id)
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
