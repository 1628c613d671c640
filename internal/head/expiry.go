package head

import (
	"math"

	"varve/internal/model"
)

// expiryMS is when all of r's samples have expired, or later. If they have one
// time-to-live, it is exact: then the newest sample expires last.
func (r *record) expiryMS() int64 { return model.ExpiryMS(r.max, r.life) }

// noteExpiry lowers s.expires to r's expiry. s.mu must be held.
func (s *shard) noteExpiry(r *record) { s.expires = min(s.expires, r.expiryMS()) }

// Expiry returns when the last sample of a series expires, or a later time;
// math.MaxInt64 is never. It is exact if the samples have one time-to-live. ok is false
// if the series has no samples here.
func (h *Head) Expiry(id model.SeriesNumber) (ms int64, ok bool) {
	si, pi, slot := locate(id)
	s := &h.shards[si]
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.record(pi, slot)
	if r == nil {
		return 0, false
	}
	return r.expiryMS(), true
}

// Expired calls fn for the series whose Expiry is not after nowMS. It reads only shards
// in which a series may have expired since the last call. A later call may yield the
// same series again. Samples that are appended during the call may be missed until the
// next call. Only one goroutine may call Expired at a time.
func (h *Head) Expired(nowMS int64, fn func(id model.SeriesNumber)) {
	for si := range uint32(shardCount) {
		s := &h.shards[si]
		s.mu.Lock()
		due := s.expires <= nowMS
		if due {
			s.expires = math.MaxInt64 // appends from here on lower it
		}
		s.mu.Unlock()
		if !due {
			continue
		}
		next := int64(math.MaxInt64)
		for di := s.nextDirectory(0); di >= 0; di = s.nextDirectory(di + 1) {
			for pi := uint32(di) * dirPages; pi < uint32(di+1)*dirPages; pi++ {
				next = min(next, s.expiredOf(pi, nowMS, func(slot uint32) { fn(numberAt(si, pi, slot)) }))
			}
		}
		s.mu.Lock()
		s.expires = min(s.expires, next)
		s.mu.Unlock()
	}
}

// expiredOf is Expired for one page. It returns when the next series of the page
// expires.
func (s *shard) expiredOf(pi uint32, nowMS int64, fn func(slot uint32)) (next int64) {
	var slots [pageSize]uint32
	n := 0
	next = math.MaxInt64
	s.mu.RLock()
	if p := s.at(pi); p != nil {
		for slot := range p {
			switch ms := p[slot].expiryMS(); {
			case p[slot].count == 0:
			case ms > nowMS:
				next = min(next, ms)
			default:
				slots[n] = uint32(slot)
				n++
			}
		}
	}
	s.mu.RUnlock()
	for _, slot := range slots[:n] {
		fn(slot)
	}
	return next
}
