package head

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"

	"varve/internal/chunk"
	"varve/internal/model"
)

// A Run is a snapshot of what a head holds of one series. It is decoded without a lock.
// Reuse it to reuse its memory.
type Run struct {
	// Stamps is set before a run is taken. It requests the write timestamps of the
	// samples, from a head that has them.
	Stamps bool

	// Hold, if not nil, is called before the run takes so many bytes: references to very many fragments, or all
	// samples of a shuffled series. It may wait, and its error ends the snapshot. Release gives them back.
	Hold func(bytes int64) error
	held int64

	Kind model.Kind

	// Fragments are ascending and disjoint, and all before Open. There are none if the
	// series is shuffled; then Open has all samples.
	Fragments []Fragment

	// Open is sorted, with each time once.
	Open model.Columns

	decoder chunk.Decoder
	sorter  model.Sorter
	spare   model.Columns
}

// Reserve holds n bytes more. No lock may be held.
func (r *Run) Reserve(n int64) error {
	if r.Hold == nil {
		return nil
	}
	if err := r.Hold(n); err != nil {
		return err
	}
	r.held += n
	return nil
}

// Release gives back what was held. It reports whether anything was held: then neither the run nor
// what has taken over its samples may be kept for reuse.
func (r *Run) Release() (large bool) {
	large = r.held > 0
	if large {
		_ = r.Hold(-r.held)
		*r = Run{Stamps: r.Stamps}
	}
	r.Hold = nil
	return large
}

// A Fragment is a sealed run of samples.
type Fragment struct {
	FirstMS, LastMS int64
	encoded         []byte

	codes     []byte // stamps, perhaps followed by other bytes; nil if there are none
	stampBase int64
}

// Decode appends the samples of a fragment of this run to dst.
func (r *Run) Decode(f Fragment, dst *model.Columns) error {
	if _, err := r.decoder.Decode(f.encoded, r.Kind, dst); err != nil {
		return err
	}
	if r.Stamps && f.codes != nil {
		dst.Stamps = f.decodeStamps(dst.Stamps)
	}
	return nil
}

// DecodeAll appends all samples of this run to dst.
func (r *Run) DecodeAll(dst *model.Columns) error {
	for _, f := range r.Fragments {
		if err := r.Decode(f, dst); err != nil {
			return err
		}
	}
	dst.Append(&r.Open, 0, r.Open.Len())
	return nil
}

// Count returns the number of samples.
func (f Fragment) Count() int { return chunk.Count(f.encoded) }

// Reduce appends statistics of a fragment of this run to dst. If samples have
// times-to-live, ok is false and nothing is appended.
func (r *Run) Reduce(f Fragment, cut *chunk.Cut, dst []model.Stats) (_ []model.Stats, ok bool, err error) {
	return r.decoder.Reduce(f.encoded, r.Kind, cut, dst)
}

// Snapshot fills run with the samples of series id: the fragments that overlap within,
// which the caller clips, and the open samples in it. It reports whether the series has any
// sample, in the range or not. An error means that memory was damaged, or comes from Hold.
func (h *Head) Snapshot(id model.SeriesNumber, within model.TimeRange, run *Run) (bool, error) {
	run.Fragments, run.Kind = run.Fragments[:0], 0
	run.Open.Reset()
	d, ok, err := h.collect(id, within, run)
	if !ok || err != nil {
		return ok, err
	}
	if !d.is(shuffled) {
		run.sorter.Sort(run.Kind, &run.Open)
		return true, nil
	}
	return true, run.flatten()
}

// collectStep is how many fragments are looked at while a shard is locked, since writers wait meanwhile. A
// series may have millions, if each of its samples has another time-to-live than the one before.
const collectStep = 4096

// collect copies references to fragments, oldest first, and the open samples.
//
// Between two steps, samples may be appended or deleted. The fragments that the series had at first stay in the
// arena. Each refers to the older one that it had then, or to one that a delete has put in its place since.
func (h *Head) collect(id model.SeriesNumber, within model.TimeRange, run *Run) (d disorder, ok bool, err error) {
	si, pi, slot := locate(id)
	s := &h.shards[si]
	ref, d, ok := s.collectOpen(pi, slot, within, run)
	for ref != 0 {
		if ref = s.collectSome(ref, d, within, run); ref == 0 {
			break
		}
		if err := run.Reserve(collectStep * listBytes); err != nil {
			return d, true, err
		}
		run.Fragments = slices.Grow(run.Fragments, collectStep) // slow, so not under the lock
	}
	slices.Reverse(run.Fragments)
	return d, ok, nil
}

// collectOpen copies the open samples of a series. It returns the newest fragment, 0 if there is none.
func (s *shard) collectOpen(pi, slot uint32, within model.TimeRange, run *Run) (newest uint32, d disorder, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.record(pi, slot)
	if r == nil {
		return 0, 0, false
	}
	run.Kind = r.kind
	s.copyOpen(r, within, &run.Open, run.Stamps && s.stamped)
	return r.fragment, r.disorder, true
}

// collectSome looks at up to collectStep fragments of a series, from ref on. It returns the next one, 0 if
// there is none that may overlap within.
func (s *shard) collectSome(ref uint32, d disorder, within model.TimeRange, run *Run) (next uint32) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for range collectStep {
		if ref == 0 {
			return 0
		}
		f, older := s.fragment(ref)
		if f.LastMS >= within.StartMS && f.FirstMS <= within.EndMS {
			run.Fragments = append(run.Fragments, f)
		} else if !d.is(shuffled) && f.LastMS < within.StartMS {
			return 0
		}
		ref = older
	}
	return ref
}

// Arrivals fills run with all samples of series id in arrival order: neither fragments
// nor open samples are sorted by time, and times may repeat.
func (h *Head) Arrivals(id model.SeriesNumber, run *Run) {
	run.Fragments, run.Kind = run.Fragments[:0], 0
	run.Open.Reset()
	_, _, _ = h.collect(id, model.AllTime, run) // nothing holds memory for it
}

// ReserveStep is how many bytes the samples of a series may take before they are held.
const ReserveStep = 256 << 10

// flatten decodes everything into Open, in arrival order, and sorts it.
func (r *Run) flatten() error {
	all := &r.spare
	all.Reset()
	held := int64(0)
	holdFor := func(samples int64) error { // they are decoded, sorted into other memory, and perhaps reversed
		if more := 5*samples/2 - held; more >= ReserveStep {
			held += more
			return r.Reserve(more)
		}
		return nil
	}
	for _, f := range r.Fragments {
		if err := r.Decode(f, all); err != nil {
			return err
		}
		if err := holdFor(all.Memory() + r.Open.Memory()); err != nil {
			return err
		}
	}
	all.Append(&r.Open, 0, r.Open.Len())
	r.Fragments = r.Fragments[:0]
	r.sorter.Sort(r.Kind, all)
	r.Open, r.spare = r.spare, r.Open
	if r.held > 0 { // what was decoded is of no use any more
		r.sorter, r.spare = model.Sorter{}, model.Columns{}
	}
	return nil
}

// record returns the record of a series that has samples, else nil.
func (s *shard) record(pi, slot uint32) *record {
	p := s.at(pi)
	if p == nil || p[slot].count == 0 {
		return nil
	}
	return &p[slot]
}

func (s *shard) fragment(ref uint32) (f Fragment, older uint32) {
	block, offset := place(ref)
	a := s.arena[block][offset:]
	older = binary.LittleEndian.Uint32(a)
	size := binary.LittleEndian.Uint32(a[4:])
	f.FirstMS = int64(binary.LittleEndian.Uint64(a[8:]))
	f.LastMS = int64(binary.LittleEndian.Uint64(a[16:]))
	f.encoded = a[fragmentHeader : fragmentHeader+size : fragmentHeader+size]
	if s.stamped {
		f.codes, f.stampBase = a[fragmentHeader+size:], s.stampBase
	}
	return f, older
}

// Span returns the first and last time of a series. ok is false if it has no samples
// here.
func (h *Head) Span(id model.SeriesNumber) (model.TimeRange, bool) {
	si, pi, slot := locate(id)
	s := &h.shards[si]
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.record(pi, slot)
	if r == nil {
		return model.TimeRange{StartMS: 1}, false
	}
	return model.TimeRange{StartMS: r.min, EndMS: r.max}, true
}

// Series yields the ids of series with samples, ascending. It may miss a series that is
// appended to meanwhile.
func (h *Head) Series() iter.Seq[model.SeriesNumber] {
	return func(yield func(model.SeriesNumber) bool) {
		for di := h.nextDirectory(0); di >= 0; di = h.nextDirectory(di + 1) {
			for pi := uint32(di) * dirPages; pi < uint32(di+1)*dirPages; pi++ {
				if !h.seriesOf(pi, yield) {
					return
				}
			}
		}
	}
}

// nextDirectory returns the least index of a directory that exists in some shard and is
// at least di, or -1 if there is none.
func (h *Head) nextDirectory(di int) int {
	next := -1
	for i := range h.shards {
		if at := h.shards[i].nextDirectory(di); at >= 0 && (next < 0 || at < next) {
			next = at
		}
	}
	return next
}

// nextDirectory is the same for one shard.
func (s *shard) nextDirectory(di int) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for ; di < len(s.dirs); di++ {
		if s.dirs[di] != nil {
			return di
		}
	}
	return -1
}

// seriesOf yields the ids of the pi-th page of each shard.
func (h *Head) seriesOf(pi uint32, yield func(model.SeriesNumber) bool) bool {
	for si := range uint32(shardCount) {
		s := &h.shards[si]
		s.mu.RLock()
		there := s.there(pi)
		s.mu.RUnlock()
		for ; there != 0; there &= there - 1 {
			slot := uint32(bits.TrailingZeros64(there))
			if !yield(numberAt(si, pi, slot)) {
				return false
			}
		}
	}
	return true
}

// there returns a bit for each series of a page that has samples.
func (s *shard) there(pi uint32) (slots uint64) {
	p := s.at(pi)
	if p == nil {
		return 0
	}
	for i := range p {
		if p[i].count > 0 {
			slots |= 1 << i
		}
	}
	return slots
}

// Count returns the number of samples applied to a series, overwritten ones included.
// Deleted samples do not count, unless they had been overwritten.
func (h *Head) Count(id model.SeriesNumber) int64 {
	si, pi, slot := locate(id)
	s := &h.shards[si]
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.record(pi, slot); r != nil {
		return int64(r.count)
	}
	return 0
}
