package head

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"varve/internal/chunk"
	"varve/internal/model"
)

// Delete removes the samples of series id within r. A series without samples left is
// forgotten. Only fragments that r cuts through are rewritten; the old ones and those
// that r covers stay in the arena until the head is dropped. An error means that memory
// was damaged. A head with stamps does not support Delete: its samples are drained to
// another store and deleted there.
func (h *Head) Delete(id model.SeriesNumber, r model.TimeRange) error {
	if h.Stamped() {
		panic("head: delete from a head with stamps")
	}
	si, pi, slot := locate(id)
	s := &h.shards[si]
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.record(pi, slot)
	if rec == nil || !r.Overlaps(model.TimeRange{StartMS: rec.min, EndMS: rec.max}) {
		return nil
	}
	if r.StartMS <= rec.min && rec.max <= r.EndMS {
		h.bytes.Add(s.release(rec))
		*rec = record{}
		return nil
	}
	e := erasers.Get().(*eraser)
	defer erasers.Put(e)
	e.shard, e.record, e.without, e.grown = s, rec, r, 0
	err := e.run()
	h.bytes.Add(e.grown)
	e.shard, e.record = nil, nil
	if err != nil {
		return fmt.Errorf("delete from series %d in memory: %w", id, err)
	}
	return nil
}

var erasers = sync.Pool{New: func() any { return new(eraser) }}

// eraser removes a range of time from a series of a locked shard.
type eraser struct {
	shard   *shard
	record  *record
	without model.TimeRange
	grown   int64 // bytes
	span    model.TimeRange

	decoder    chunk.Decoder
	all, spare model.Columns
}

func (e *eraser) run() error {
	e.span = model.TimeRange{StartMS: math.MaxInt64, EndMS: math.MinInt64}
	if err := e.fragments(); err != nil {
		return err
	}
	e.open()
	if r := e.record; r.open == 0 && r.fragment == 0 {
		*r = record{}
	} else {
		r.min, r.max = e.span.StartMS, e.span.EndMS
		e.shard.noteExpiry(r)
	}
	return nil
}

// saw extends the range of the remaining samples.
func (e *eraser) saw(first, last int64) {
	e.span.StartMS, e.span.EndMS = min(e.span.StartMS, first), max(e.span.EndMS, last)
}

// fragments removes the range from the sealed samples, newest first.
func (e *eraser) fragments() error {
	s, r := e.shard, e.record
	newer := uint32(0) // the fragment before in the chain
	for ref := r.fragment; ref != 0; {
		f, older := s.fragment(ref)
		if f.LastMS < e.without.StartMS && !r.disorder.is(shuffled) {
			e.saw(r.min, f.LastMS) // the rest is older
			return nil
		}
		if f.LastMS >= e.without.StartMS && f.FirstMS <= e.without.EndMS {
			var err error
			if ref, err = e.fragment(ref, f, older); err != nil {
				return err
			}
			e.link(newer, ref, older)
		}
		if ref != 0 {
			f, _ = s.fragment(ref)
			e.saw(f.FirstMS, f.LastMS)
			newer = ref
		}
		ref = older
	}
	return nil
}

// link makes ref, or older if ref is 0, the successor of newer in the chain.
func (e *eraser) link(newer, ref, older uint32) {
	if ref == 0 {
		ref = older
	}
	if newer == 0 {
		e.record.fragment = ref
		return
	}
	block, offset := place(newer)
	binary.LittleEndian.PutUint32(e.shard.arena[block][offset:], ref)
}

// fragment returns the reference of what remains of a fragment: the same if it loses
// nothing, 0 if it loses everything.
func (e *eraser) fragment(ref uint32, f Fragment, older uint32) (uint32, error) {
	r := e.record
	if e.without.StartMS <= f.FirstMS && f.LastMS <= e.without.EndMS {
		r.count -= uint32(chunk.Count(f.encoded))
		return 0, nil
	}
	e.all.Reset()
	if _, err := e.decoder.Decode(f.encoded, r.kind, &e.all); err != nil {
		return 0, err
	}
	removed := e.filter() // not all samples: the first or the last one stays
	if removed == 0 {
		return ref, nil
	}
	r.count -= uint32(removed)
	s := e.shard
	s.encoded = chunk.Append(s.encoded[:0], r.kind, &e.all, 0, e.all.Len(), chunk.Fast)
	e.grown += s.fragmentBytes()
	return s.store(older, e.all.Times[0], e.all.Times[e.all.Len()-1]), nil
}

// filter removes samples of e.all. It returns how many.
func (e *eraser) filter() (removed int) {
	times := e.all.Times
	e.all.Drop(&e.spare, func(i int) bool { return e.without.Contains(times[i]) })
	return len(times) - e.all.Len()
}

// open removes the range from the open samples.
func (e *eraser) open() {
	s, r := e.shard, e.record
	if r.open == 0 {
		return
	}
	e.all.Reset()
	s.copyOpen(r, model.AllTime, &e.all, false)
	if e.filter() > 0 {
		r.count -= uint32(r.open)
		e.grown += s.release(r)
		for i, ms := range e.all.Times {
			e.grown += e.put(i, ms)
		}
	}
	if e.all.Len() > 0 {
		e.saw(slices.Min(e.all.Times), slices.Max(e.all.Times))
	}
}

// put makes a sample of e.all an open one again. Base and time-to-live of the record
// are still those of its open samples.
func (e *eraser) put(i int, ms int64) (grown int64) {
	s, r := e.shard, e.record
	switch {
	case r.kind.Fixed():
		return s.put(r, ms, e.all.Values[i])
	case r.kind.Variable():
		v := e.all.Bytes(i)
		at := uint64(len(s.data))
		s.data = append(s.data, v...)
		r.held += uint32(len(v))
		return int64(len(v)) + s.put(r, ms, at<<32|uint64(len(v)))
	}
	return s.put(r, ms, 0)
}
