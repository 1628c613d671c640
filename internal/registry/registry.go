// Package registry maps the keys of a store's series to ids and back. It does no I/O: a
// store's log and catalogue hold the same in files.
//
// Ids are dense and may be on disk. A file, a log record or a deletion may refer to a
// series long after it was forgotten. A forgotten series costs its share of a page (see
// page), or of one pointer when the whole page is forgotten: 0.03 bytes. So an id is
// reused only if the caller states that nothing refers to it (Vacant, Reuse), and only
// in a registry that has assigned many: two thousand million ids last for a century of
// 50,000 new series a day, but all four thousand million last for only 35 days of
// 5,000,000 an hour.
//
// A registry also tracks which series a log record has introduced, for a store whose
// log introduces each series once: Introduce, Unused, Unlogged. A store that tracks
// this itself does not use them.
package registry

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

// A Registry holds series. Make one with New. All methods may be called by many
// goroutines at once.
type Registry struct {
	epoch    atomic.Uint64 // see Epoch
	forgets  atomic.Uint64 // calls of Forget
	unlogged atomic.Int64  // series that no log record has introduced yet

	mu    sync.RWMutex
	byKey index.Table
	pages []*page
	live  int                // pages in memory
	next  model.SeriesNumber // the next new id
	gone  int                // series forgotten in this epoch

	keyBytes   int64 // of all keys in memory
	freshBytes int64 // of the keys that no log record has introduced yet

	free    []uint32 // ids to reuse before next; plain uint32, as in the bitmap
	reusing int      // the page of the last reused id
	reused  int64    // ids reused so far

	replaced []model.SeriesNumber // ids whose key Restore has moved to another id
}

// New returns an empty registry.
func New() *Registry {
	r := &Registry{byKey: index.NewTable()}
	r.epoch.Store(1)
	return r
}

// forgetsPerEpoch is how many series are forgotten before the epoch moves.
const forgetsPerEpoch = 1 << 20

// Epoch is the current generation of ids. The ref of a forgotten series is invalid at
// once. The epoch moves once so many series were forgotten that callers should drop all
// cached refs.
func (r *Registry) Epoch() uint64 { return r.epoch.Load() }

// Forgets counts the calls of Forget. While it stays the same, valid refs stay valid.
func (r *Registry) Forgets() uint64 { return r.forgets.Load() }

// Unlogged is the number of series that no log record has introduced yet.
func (r *Registry) Unlogged() int64 { return r.unlogged.Load() }

// Lookup finds a series by its key. It allocates nothing.
func (r *Registry) Lookup(key []byte) (model.SeriesNumber, bool) {
	hash := r.byKey.Hash(key)
	r.mu.RLock()
	id, ok := r.findLocked(hash, key)
	r.mu.RUnlock()
	return id, ok
}

// findLocked returns the id of a key. r.mu must be held.
func (r *Registry) findLocked(hash uint64, key []byte) (model.SeriesNumber, bool) {
	id, ok := r.byKey.Find(hash, func(id uint32) bool { return r.keyLocked(model.SeriesNumber(id)) == string(key) })
	return model.SeriesNumber(id), ok
}

// Count returns the number of series.
func (r *Registry) Count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byKey.Len()
}

// Bytes is the approximate memory of r. unlogged is the part taken by keys that no log
// record has introduced yet.
func (r *Registry) Bytes() (all, unlogged int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.keyBytes + int64(r.byKey.Len())*entryBytes + int64(r.live)*pageBytes, r.freshBytes
}

// entryBytes is the average memory of a series in byKey.
const entryBytes = 16

// CreateSeries returns the ref of a series, and assigns one if it is new. A series
// without a valid key is a *store.InputError.
func (r *Registry) CreateSeries(s model.Series) (store.Ref, error) {
	key := string(s.AppendKey(nil))
	if _, err := model.ParseKey(key); err != nil {
		return 0, &store.InputError{Reason: err.Error()}
	}
	id, err := r.Create(key)
	return store.Ref(id), err
}

// Create returns the id of a valid key, and assigns one if it is new. The only error is
// a *store.LimitError when there are no ids left.
func (r *Registry) Create(key string) (model.SeriesNumber, error) {
	hash := r.byKey.Hash([]byte(key))
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.findLocked(hash, []byte(key)); ok {
		return id, nil
	}
	id, ok := r.nextLocked()
	if !ok {
		return 0, &store.LimitError{Limit: "series ids of a store", Max: math.MaxUint32, What: "create a series"}
	}
	r.setLocked(id, key, fresh)
	r.byKey.Add(hash, uint32(id))
	r.unlogged.Add(1)
	r.freshBytes += int64(len(key))
	return id, nil
}

// nextLocked returns an id for a new series. r.mu must be held.
func (r *Registry) nextLocked() (id model.SeriesNumber, ok bool) {
	if len(r.free) == 0 {
		if r.next == math.MaxUint32 {
			return 0, false
		}
		r.next++
		return r.next - 1, true
	}
	id, r.free = model.SeriesNumber(r.free[0]), r.free[1:]
	r.reused++
	if at := int(id / PageSize); at != r.reusing {
		if r.reusing < len(r.pages)-1 && r.pages[r.reusing] != nil {
			r.packLocked(r.pages[r.reusing]) // it is as full as it gets for now
		}
		r.reusing = at
	}
	return id, true
}

const (
	// reuseFrom is the number of assigned ids from which ids are reused. Most stores
	// never reach it.
	reuseFrom = 1 << 26

	// reuseMax is roughly how many ids wait for reuse at most: enough for the series of
	// a few checkpoints.
	reuseMax = 1 << 21
)

// Vacant returns ids of forgotten series for Reuse, nil if none are needed now. It
// starts at the page of from and returns a few million ids at most. next is where to
// continue, 0 at the end. The caller removes the ids that something still refers to.
func (r *Registry) Vacant(from model.SeriesNumber) (ids *roaring.Bitmap, next model.SeriesNumber) {
	r.mu.RLock()
	end, waiting := r.next, r.free
	r.mu.RUnlock()
	if end < reuseFrom || len(waiting) > reuseMax/2 {
		return nil, from
	}
	ids = roaring.New()
	at := int64(from / PageSize)
	for ; ids.GetCardinality() < reuseMax && at*PageSize < int64(end); at += vacantSlice {
		r.vacantOf(int(at), end, ids)
	}
	if at*PageSize < int64(end) {
		next = model.SeriesNumber(at * PageSize)
	}
	ids.AndNot(roaring.BitmapOf(waiting...))
	return ids, next
}

// vacantSlice is the number of pages that Vacant reads under one hold of the lock.
const vacantSlice = 64

// vacantOf adds to ids those of some pages that are below next and have no series.
func (r *Registry) vacantOf(from int, next model.SeriesNumber, ids *roaring.Bitmap) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for at := from; at < from+vacantSlice; at++ {
		first := uint64(at) * PageSize
		end := max(first, min(first+PageSize, uint64(next)))
		if at >= len(r.pages) || r.pages[at] == nil {
			ids.AddRange(first, end)
			continue
		}
		for id := first; id < end; id++ {
			if r.pages[at].kinds[id%PageSize] == 0 {
				ids.Add(uint32(id))
			}
		}
	}
}

// Reuse lets Create assign ids again that Vacant has returned. Nothing may refer to
// them. The epoch moves, since callers may have cached what the ids stood for. Only one
// goroutine may call Vacant and Reuse at a time.
func (r *Registry) Reuse(ids *roaring.Bitmap) {
	if ids.IsEmpty() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(slices.Clip(r.free), ids.ToArray()...)
	r.gone = 0
	r.epoch.Add(1)
}

// Left returns how many ids are left for new series, as far as known, and how many were
// reused.
func (r *Registry) Left() (left, reused int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return math.MaxUint32 - int64(r.next) + int64(len(r.free)), r.reused
}

// Restore adds a series read from the catalogue or the log. A key that another id had
// before moves to the new one.
func (r *Registry) Restore(d record.Definition) {
	hash := r.byKey.Hash([]byte(d.Key))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = max(r.next, d.ID+1)
	id, ok := r.findLocked(hash, []byte(d.Key))
	switch {
	case ok && id == d.ID:
		return
	case ok:
		r.byKey.Remove(hash, uint32(id))
		r.replaced = append(r.replaced, id)
	}
	r.setLocked(d.ID, d.Key, logged)
	r.byKey.Add(hash, uint32(d.ID))
}

// setLocked puts a series in its page. r.mu must be held.
func (r *Registry) setLocked(id model.SeriesNumber, key string, m mark) {
	p := r.pageLocked(id)
	before := p.bytes
	p.set(uint32(id%PageSize), key, m)
	r.keyBytes += int64(p.bytes - before)
}

// pageLocked returns the page of an id, and makes it if needed. r.mu must be held.
func (r *Registry) pageLocked(id model.SeriesNumber) *page {
	at := int(id / PageSize)
	if n := len(r.pages); at >= n {
		if n > 0 && r.pages[n-1] != nil {
			r.packLocked(r.pages[n-1]) // it is full, or as full as it gets
		}
		r.pages = append(r.pages, make([]*page, at+1-n)...)
	}
	if r.pages[at] == nil {
		r.pages[at] = newPage()
		r.live++
	}
	return r.pages[at]
}

// packLocked packs a page. r.mu must be held.
func (r *Registry) packLocked(p *page) {
	before := p.bytes
	p.pack()
	r.keyBytes += int64(p.bytes - before)
}

// placeLocked returns the page and slot of an id; p is nil if there is no such series.
// r.mu must be held.
func (r *Registry) placeLocked(id model.SeriesNumber) (p *page, slot uint32) {
	at, slot := int(id/PageSize), uint32(id%PageSize)
	if at >= len(r.pages) || r.pages[at] == nil || r.pages[at].kinds[slot] == 0 {
		return nil, 0
	}
	return r.pages[at], slot
}

// kindLocked returns the kind of a series, 0 if there is none. r.mu must be
// held.
func (r *Registry) kindLocked(id model.SeriesNumber) model.Kind {
	if at := int(id / PageSize); at < len(r.pages) && r.pages[at] != nil {
		return r.pages[at].kinds[id%PageSize]
	}
	return 0
}

// keyLocked returns the key of a series, "" if there is none. r.mu must be held.
func (r *Registry) keyLocked(id model.SeriesNumber) string {
	p, slot := r.placeLocked(id)
	if p == nil {
		return ""
	}
	return p.key(slot)
}

// Kinds appends the kind of each sample's series to dst. It returns false if a ref is
// not, or no longer, valid.
func (r *Registry) Kinds(dst []model.Kind, samples []store.Sample) ([]model.Kind, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i := range samples {
		kind := r.kindLocked(model.SeriesNumber(samples[i].Ref))
		if kind == 0 {
			return dst, false
		}
		dst = append(dst, kind)
	}
	return dst, true
}

// Kind returns the kind of a series, 0 if there is none.
func (r *Registry) Kind(id model.SeriesNumber) model.Kind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.kindLocked(id)
}

// Key returns the key of a series, "" if there is none.
func (r *Registry) Key(id model.SeriesNumber) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.keyLocked(id)
}

// Series returns the series of an id.
func (r *Registry) Series(id model.SeriesNumber) (model.Series, bool) {
	key := r.Key(id)
	if key == "" {
		return model.Series{}, false
	}
	return model.TrustKey(key), true // keys are checked when they are added
}

// Introduce collects the series of samples that no log record has introduced, and marks
// them introduced. Calls must be in the order of the caller's log records.
func (r *Registry) Introduce(dst []record.Definition, samples []store.Sample) []record.Definition {
	if r.unlogged.Load() == 0 {
		return dst
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range samples {
		id := model.SeriesNumber(samples[i].Ref)
		p, slot := r.placeLocked(id)
		if p != nil && p.marks[slot] != logged {
			p.marks[slot] = logged
			r.unlogged.Add(-1)
			key := p.key(slot)
			r.freshBytes -= int64(len(key))
			dst = append(dst, record.Definition{ID: id, Key: key})
		}
	}
	return dst
}

// Unused returns the series that were created before the last call of Unused and that
// no log record has introduced since: their creator has given up.
func (r *Registry) Unused() (ids []model.SeriesNumber) {
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
				ids = append(ids, model.SeriesNumber(at*PageSize+slot))
			}
		}
	}
	return ids
}

// Forget removes series. Their refs are void from here on.
func (r *Registry) Forget(ids []model.SeriesNumber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		p, slot := r.placeLocked(id)
		if p == nil {
			continue
		}
		key := p.key(slot)
		r.byKey.Remove(r.byKey.Hash([]byte(key)), uint32(id))
		if p.marks[slot] != logged {
			r.unlogged.Add(-1)
			r.freshBytes -= int64(len(key))
		}
		before := p.bytes
		if p.forget(slot); p.live == 0 {
			r.pages[id/PageSize] = nil
			r.live--
			p.bytes = 0
		}
		r.keyBytes += int64(p.bytes - before)
	}
	r.forgets.Add(1)
	if r.gone += len(ids); r.gone >= max(forgetsPerEpoch, r.byKey.Len()) {
		r.gone = 0
		r.epoch.Add(1)
	}
}

// Expect states that ids below n were assigned.
func (r *Registry) Expect(n model.SeriesNumber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = max(r.next, n)
}

// Settle ends a series of calls of Restore. It packs the pages, and returns the ids
// whose keys have moved to other ids: such a series was forgotten before the same key
// was created again.
func (r *Registry) Settle() (forgotten []model.SeriesNumber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.replaced)
	for _, id := range slices.Compact(r.replaced) {
		if key := r.keyLocked(id); key != "" {
			if now, _ := r.findLocked(r.byKey.Hash([]byte(key)), []byte(key)); now != id {
				forgotten = append(forgotten, id)
			}
		}
	}
	r.replaced = nil
	for i, p := range r.pages {
		if p != nil && i < len(r.pages)-1 {
			r.packLocked(p)
		}
	}
	return forgotten
}

// DecodeSamples decodes the samples of a batch record, after its definitions
// (see record.Samples).
func (r *Registry) DecodeSamples(payload []byte, b *store.Batch) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return record.Samples(payload, r.kindLocked, b)
}

// IDs returns all known ids, ascending.
func (r *Registry) IDs() []model.SeriesNumber {
	r.mu.RLock()
	defer r.mu.RUnlock()
	ids := make([]model.SeriesNumber, 0, r.byKey.Len())
	for at, p := range r.pages {
		if p == nil {
			continue
		}
		for slot, kind := range p.kinds {
			if kind != 0 {
				ids = append(ids, model.SeriesNumber(at*PageSize+slot))
			}
		}
	}
	return ids
}

// NextID returns the id that the next new series gets.
func (r *Registry) NextID() model.SeriesNumber {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.next
}

// Pages returns the number of pages in memory, each of PageSize ids: at most
// one for each run of that many ids of which one is alive.
func (r *Registry) Pages() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.live
}
