// Package head keeps the samples that are not in files yet, in memory. It knows nothing
// of logs, files or tags: the embedded store feeds it from its write-ahead log, a
// Cassandra layout may feed it from a journal.
//
// # Layout
//
// A series has a 56-byte record without pointers, in pages of 64 that exist only where
// a series has samples. Its newest samples are open: a chain of micro-blocks of 8
// samples in slabs, so that a series with 3 samples costs little and growth wastes no
// memory. At 256 open samples (or 64 KiB of byte strings) the chain is sorted and sealed
// into a fragment, a chunk of package chunk in an append-only arena, and its micro-blocks
// are reused. In a crowded shard, whose open samples take more than their share of the
// memory, numbers are sealed at 32 samples. A sample takes 13 bytes open, about 3 in a fragment of 32 and
// 1.2 in one of 256, which is also read in a quarter of the time:
//
//	series record --> open:      newest -> older -> oldest    (in arrival order; each also refers to one up to 4 further)
//	              \-> fragments: newest -> older -> oldest    (each sorted)
//
//	fragment: +-----------+---------+--------+--------+-------------+---------------+
//	          | older u32 | len u32 | first  | last   | chunk       | stamps, if    |
//	          |           |         | i64 ms | i64 ms | (see chunk) | the head has  |
//	          +-----------+---------+--------+--------+-------------+---------------+
//
// # Stamps
//
// A head made by NewStamped keeps a write timestamp with each sample. For open samples
// it takes 4 bytes, an offset from the shard's first timestamp. A fragment has zigzag
// varints, first an offset, then second differences: 1 or 2 bytes each for a series
// that arrives regularly.
//
// Series ids are spread over 64 shards by (id/64)%64, so that neighbouring ids, which
// senders write together, share a lock and a page.
//
// # Invariants
//
//   - Samples of one series are applied in the order of the Append calls that carry
//     them; the caller orders those calls. The last one wins.
//   - A fragment never changes, so it is decoded without holding a lock.
//   - Unless a series is shuffled, its fragments ascend without overlap and
//     every open sample is later than all of them. A sample that is late or overwrites
//     another does not shuffle a series if it is later than all fragments.
//   - A shard has at most 8 GiB of arena blocks, at least half full, and 4 GiB of open
//     byte strings: references to them have 32 bits. The caller keeps Bytes below
//     MaxBytes, give or take what is appended concurrently.
//   - The memory for a series does not depend on its id.
package head

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/store"
)

const (
	shardCount = 64
	pageSize   = 64
	blockSize  = 8
	skipBlocks = 4

	sealMost  = 256 // open samples of a series before sealing
	sealLeast = 32  // the same of a fixed or null series, in a crowded shard
	sealBytes = 64 << 10

	// openShare limits open samples to one part of a head's expected size. A shard is crowded when
	// its samples exceed its share of that.
	openShare = 6

	slabBlocks = 256

	// Arena blocks double from the first size to the full one, so that a shard with few
	// samples takes little memory.
	arenaFirst = 16 << 10
	arenaBytes = 1 << arenaBits
	arenaBits  = 18

	// fragmentAlign is the alignment of fragments' offsets.
	fragmentAlign = 2

	// dirPages is how many pages share a directory.
	dirPages = 256

	// wasteMin is the bytes of sealed byte strings from which clearing them pays.
	wasteMin = 64 << 10
)

// MaxBytes bounds the Bytes of a head.
const MaxBytes = 2 << 30

// Head holds samples of many series. All methods may be called concurrently, except
// that the caller orders Append and Delete calls.
type Head struct {
	shards  [shardCount]shard
	samples atomic.Int64
	pages   atomic.Int64
	bytes   atomic.Int64
	packed  atomic.Int64 // what Expanded counts beside bytes
}

type shard struct {
	mu    sync.RWMutex
	dirs  []*directory // index: id / 4096 / dirPages
	slabs [][]block
	used  uint32   // blocks handed out of slabs
	free  []uint32 // unused blocks, the next one last
	busy  uint32   // blocks that hold open samples
	ample uint32   // blocks up to which the shard is not crowded
	arena [][]byte
	data  []byte // values of variable kinds that are open, or were
	waste int    // bytes of data that no open sample refers to

	packed int64 // see Head.packed; of the appends under way

	stamped   bool
	stamps    [][]stampBlock // parallel to slabs
	stamp     uint32         // of the samples of the append under way
	stampBase int64          // stamps are offsets from it; 0 before the first

	expires int64 // no series with samples expires earlier; see Expired

	scratch model.Columns
	sorter  model.Sorter
	encoded []byte
	codes   []byte // stamps, encoded
}

type page [pageSize]record

// directory holds neighbouring pages, nil for those without samples. Ids grow without
// bound, and one array of all pages would cost each head megabytes.
type directory [dirPages]*page

// record is the state of one series. Block and fragment references are 0 for
// none.
type record struct {
	base     int64  // times of open blocks are offsets from base
	min, max int64  // of all samples, valid if count > 0
	newest   uint32 // block
	skip     uint32 // block that will be the skip target of the next one
	fragment uint32
	count    uint32 // samples applied, duplicates counted
	life     uint32 // longest time-to-live of all samples, 0 = a sample has none
	ttl      uint32 // of the open samples
	held     uint32 // bytes of open values of a variable kind
	open     uint16 // samples in open blocks
	kind     model.Kind
	disorder disorder
}

// disorder says how the samples of a series are out of order.
type disorder uint8

const (
	shuffled disorder = 1 << iota // a sample arrived that was not later than all fragments
	mixed                         // an open sample arrived that was not later than all before it
)

func (d disorder) is(one disorder) bool { return d&one != 0 }

// block holds up to 8 samples in arrival order. What a walk along the chain reads comes first, in one cache
// line.
type block struct {
	older  uint32           // block of the series; 0 = none
	skip   uint32           // the next older block whose place in the chain, from its oldest, is a multiple of skipBlocks; 0 = none
	offset [blockSize]int32 // ms from the record's base
	value  [blockSize]uint64
}

// stampBlock has the stamps of a block.
type stampBlock [blockSize]uint32

const (
	recordBytes = int64(unsafe.Sizeof(record{}))
	blockBytes  = int64(unsafe.Sizeof(block{}))
	stampBytes  = int64(unsafe.Sizeof(stampBlock{}))
	pageBytes   = pageSize * recordBytes
	dirBytes    = int64(unsafe.Sizeof(directory{}))
	columnBytes = int64(8 + 8) // time and number of a sample once it is decoded

	// listBytes is what a fragment takes while its series is read, with room for the list to grow. It
	// counts for fragments of fewer than listSamples samples; others have much more data than that.
	listBytes   = int64(2 * unsafe.Sizeof(Fragment{}))
	listSamples = 8
)

// New returns an empty head that is expected to grow to a size in bytes, which may be 0. The
// larger it is, the more samples a series gathers before they are sealed.
func New(expected int64) *Head { return newHead(expected, false) }

// NewStamped returns an empty head that keeps a write timestamp with each
// sample. It takes AppendStamped in place of Append.
func NewStamped(expected int64) *Head { return newHead(expected, true) }

func newHead(expected int64, stamped bool) *Head {
	h := &Head{}
	for i := range h.shards {
		s := &h.shards[i]
		s.expires, s.stamped = math.MaxInt64, stamped
		s.ample = uint32(min(expected, MaxBytes) / openShare / shardCount / s.blockBytes())
	}
	return h
}

// Stamped reports whether the head keeps write timestamps.
func (h *Head) Stamped() bool { return h.shards[0].stamped }

// Samples is the number of samples applied, overwritten ones included.
func (h *Head) Samples() int64 { return h.samples.Load() }

// Records is the number of series that the head has a record for: those with samples, and their
// neighbours by id.
func (h *Head) Records() int64 { return h.pages.Load() * pageSize }

// Bytes is the memory of samples and records, without spare room. What Delete leaves in
// arenas counts until the head is dropped.
func (h *Head) Bytes() int64 { return h.bytes.Load() }

// Expanded is Bytes with all byte strings, and all samples of shuffled series, at their full length, and
// with what many small fragments take in addition while they are read. Reading a shuffled series takes
// about that much memory, and so does writing it to files.
func (h *Head) Expanded() int64 { return h.bytes.Load() + h.packed.Load() }

func locate(id model.SeriesNumber) (shardIndex, pageIndex, slot uint32) {
	n := uint32(id)
	return n / pageSize % shardCount, n / (pageSize * shardCount), n % pageSize
}

// numberAt is the inverse of locate.
func numberAt(shardIndex, pageIndex, slot uint32) model.SeriesNumber {
	return model.SeriesNumber((pageIndex*shardCount+shardIndex)*pageSize + slot)
}

// Append applies the samples of b in order. kinds[i] is the kind of sample i's series,
// which is the same in every call. Append keeps nothing of b.
func (h *Head) Append(b *store.Batch, kinds []model.Kind) { h.append(b, kinds, 0) }

// MaxStampSpan is how far, in ms, the stamps of one head may lie apart.
const MaxStampSpan = math.MaxUint32

// AppendStamped is Append with the write timestamp of all samples of b. It must not be
// less than that of an earlier call, and at most MaxStampSpan above the first.
func (h *Head) AppendStamped(b *store.Batch, kinds []model.Kind, stampMS int64) {
	h.append(b, kinds, stampMS)
}

func (h *Head) append(b *store.Batch, kinds []model.Kind, stampMS int64) {
	var (
		s       *shard
		current uint32 = math.MaxUint32
		grown   int64
	)
	for i := 0; i < len(b.Samples); i++ {
		sample := &b.Samples[i]
		si, pi, slot := locate(model.SeriesNumber(sample.Ref))
		if si != current {
			if s != nil {
				h.count(s)
				s.mu.Unlock()
			}
			s, current = &h.shards[si], si
			s.mu.Lock()
			if s.stamped {
				s.setStamp(stampMS)
			}
		}
		p := s.at(pi)
		if p == nil {
			var added int64
			p, added = s.addPage(pi)
			h.pages.Add(1)
			grown += added
		}
		if kinds[i].Variable() {
			grown += s.addBytes(&p[slot], kinds[i], sample.TimeMS, b.Bytes(*sample), sample.TTL)
			continue
		}
		grown += s.add(&p[slot], kinds[i], sample.TimeMS, sample.Value, sample.TTL)
		i += s.extend(&p[slot], sample.Ref, b.Samples[i+1:])
	}
	if s != nil {
		h.count(s)
		s.mu.Unlock()
	}
	h.samples.Add(int64(len(b.Samples)))
	h.bytes.Add(grown)
}

// count adds what a shard has packed to the head's total. s.mu must be held.
func (h *Head) count(s *shard) {
	if s.packed > 0 {
		h.packed.Add(s.packed)
		s.packed = 0
	}
}

// addPage makes the i-th page, and returns by how many bytes the shard grew.
func (s *shard) addPage(i uint32) (p *page, grown int64) {
	if need := int(i/dirPages) + 1; need > len(s.dirs) {
		s.dirs = append(s.dirs, make([]*directory, need-len(s.dirs))...)
	}
	d := &s.dirs[i/dirPages]
	if *d == nil {
		*d = new(directory)
		grown = dirBytes
	}
	p = new(page)
	(*d)[i%dirPages] = p
	return p, grown + pageBytes
}

// at returns the i-th page, nil if there is none.
func (s *shard) at(i uint32) *page {
	if i/dirPages >= uint32(len(s.dirs)) || s.dirs[i/dirPages] == nil {
		return nil
	}
	return s.dirs[i/dirPages][i%dirPages]
}

// add applies one sample of a fixed kind or null and returns by how many bytes
// the shard grew. s.mu must be held.
func (s *shard) add(r *record, kind model.Kind, ms int64, value uint64, ttl uint32) (grown int64) {
	grown = s.prepare(r, kind, ms, ttl) + s.put(r, ms, value)
	if r.open >= sealLeast && r.open%blockSize == 0 && (r.open >= sealMost || s.busy > s.ample) {
		grown += s.seal(r)
	}
	return grown
}

// addBytes is add for variable kinds. It copies v.
func (s *shard) addBytes(r *record, kind model.Kind, ms int64, v []byte, ttl uint32) (grown int64) {
	grown = s.prepare(r, kind, ms, ttl) // may move what is in s.data
	at := uint64(len(s.data))
	s.data = append(s.data, v...)
	r.held += uint32(len(v))
	grown += int64(len(v)) + s.put(r, ms, at<<32|uint64(len(v)))
	if r.open >= sealMost || r.held >= sealBytes {
		grown += s.seal(r)
	}
	return grown
}

// prepare makes r ready for an open sample at ms.
func (s *shard) prepare(r *record, kind model.Kind, ms int64, ttl uint32) (grown int64) {
	if r.count == 0 {
		*r = record{kind: kind, min: ms, max: ms, life: ttl}
	}
	offset := ms - r.base // may wrap, as adding it to base does
	if r.open > 0 && (ttl != r.ttl || int64(int32(offset)) != offset) {
		grown = s.seal(r)
	}
	if ms <= r.max {
		r.disorder |= mixed
		s.shuffle(r, ms)
	}
	r.min, r.max = min(r.min, ms), max(r.max, ms)
	if r.life != 0 {
		if r.life = max(r.life, ttl); ttl == 0 {
			r.life = 0
		}
		s.noteExpiry(r)
	}
	if r.open == 0 {
		r.base, r.ttl = ms, ttl
		r.disorder &^= mixed
	}
	return grown
}

// shuffle notes that r is shuffled if a sample at ms is not later than all fragments.
func (s *shard) shuffle(r *record, ms int64) {
	if r.fragment == 0 || r.disorder.is(shuffled) {
		return
	}
	if last, _ := s.fragment(r.fragment); ms <= last.LastMS {
		r.disorder |= shuffled
		s.packed += int64(r.count-uint32(r.open)) * columnBytes
	}
}

// put adds a sample to r's open ones. prepare must have run.
func (s *shard) put(r *record, ms int64, value uint64) (grown int64) {
	at := r.open % blockSize
	if at == 0 {
		if r.open/blockSize%skipBlocks == 1 {
			r.skip = r.newest
		}
		n := s.newBlock()
		b := s.block(n)
		b.older, b.skip = r.newest, r.skip
		r.newest = n
		grown = s.blockBytes()
	}
	b := s.block(r.newest)
	b.offset[at], b.value[at] = int32(ms-r.base), value
	if s.stamped {
		s.stampsOf(r.newest)[at] = s.stamp
	}
	r.open++
	r.count++
	return grown
}

// extend adds samples to the block of r's newest sample as long as they belong to r,
// are later than all of r, and have the same time-to-live: for these prepare would have
// nothing to do. It leaves the last place of a block to add, which may have to seal. It
// returns how many samples it has added.
func (s *shard) extend(r *record, ref store.Ref, samples []store.Sample) (n int) {
	at := int(r.open % blockSize)
	if at == 0 || len(samples) == 0 || samples[0].Ref != ref {
		return 0
	}
	b := s.block(r.newest)
	for n < len(samples) && at < blockSize-1 {
		sample := &samples[n]
		offset := sample.TimeMS - r.base
		if sample.Ref != ref || sample.TimeMS <= r.max || sample.TTL != r.ttl || int64(int32(offset)) != offset {
			break
		}
		b.offset[at], b.value[at] = int32(offset), sample.Value
		if s.stamped {
			s.stampsOf(r.newest)[at] = s.stamp
		}
		r.max = sample.TimeMS
		at++
		n++
	}
	r.open += uint16(n)
	r.count += uint32(n)
	return n
}

func (s *shard) block(ref uint32) *block { return &s.slabs[(ref-1)/slabBlocks][(ref-1)%slabBlocks] }

func (s *shard) newBlock() uint32 {
	s.busy++
	if last := len(s.free) - 1; last >= 0 {
		ref := s.free[last]
		s.free = s.free[:last]
		return ref
	}
	if int(s.used) == len(s.slabs)*slabBlocks {
		s.slabs = append(s.slabs, make([]block, slabBlocks))
		if s.stamped {
			s.stamps = append(s.stamps, make([]stampBlock, slabBlocks))
		}
	}
	s.used++
	return s.used
}

// seal turns r's open samples into a fragment. s.mu must be held.
func (s *shard) seal(r *record) (grown int64) {
	c := &s.scratch
	c.Reset()
	s.copyOpen(r, model.AllTime, c, s.stamped)
	s.sorter.Sort(r.kind, c)
	grown = s.storeColumns(r, c)
	s.packed += max(0, int64(r.held)-int64(len(s.encoded)))
	if r.disorder.is(shuffled) {
		s.packed += int64(c.Len()) * columnBytes
	}
	if c.Len() < listSamples {
		s.packed += listBytes
	}
	return grown + s.release(r)
}

// storeColumns makes c the newest fragment of r. It returns by how many bytes the
// shard grew.
func (s *shard) storeColumns(r *record, c *model.Columns) (grown int64) {
	s.encoded = chunk.Append(s.encoded[:0], r.kind, c, 0, c.Len(), chunk.Fast)
	s.codes = s.codes[:0]
	if s.stamped {
		s.codes = appendStamps(s.codes, c.Stamps, s.stampBase)
	}
	r.fragment = s.store(r.fragment, c.Times[0], c.Times[c.Len()-1])
	return s.fragmentBytes()
}

// release drops r's open samples and returns by how many bytes the shard grew, a
// negative number. s.mu must be held.
func (s *shard) release(r *record) (grown int64) {
	if r.open == 0 {
		return 0
	}
	var blocks openBlocks
	unused := s.openWithin(r, model.AllTime, &blocks)
	grown = -int64(len(unused)) * s.blockBytes()
	s.busy -= uint32(len(unused))
	s.free = append(s.free, unused...)
	s.waste += int(r.held)
	r.newest, r.skip, r.open, r.held = 0, 0, 0, 0
	if s.waste >= wasteMin && s.waste >= len(s.data)/2 {
		grown += s.clearWaste()
	}
	return grown
}

// clearWaste copies the byte strings of open samples to a new buffer, so that the
// memory of the sealed ones is freed.
func (s *shard) clearWaste() (grown int64) {
	live := make([]byte, 0, len(s.data)-s.waste)
	for _, d := range s.dirs {
		if d == nil {
			continue
		}
		for _, p := range d {
			if p == nil {
				continue
			}
			for i := range p {
				if r := &p[i]; r.open > 0 && r.kind.Variable() {
					live = s.moveOpen(r, live)
				}
			}
		}
	}
	grown = int64(len(live)) - int64(len(s.data))
	s.data, s.waste = live, 0
	return grown
}

// moveOpen copies r's open byte strings to live and updates r's references.
func (s *shard) moveOpen(r *record, live []byte) []byte {
	var blocks openBlocks
	for _, ref := range s.openWithin(r, model.AllTime, &blocks) {
		b := s.block(ref)
		for i := range r.openIn(ref) {
			at, size := b.value[i]>>32, b.value[i]&math.MaxUint32
			b.value[i] = uint64(len(live))<<32 | size
			live = append(live, s.data[at:at+size]...)
		}
	}
	return live
}

// openBlocks has room for the blocks of a series.
type openBlocks [sealMost / blockSize]uint32

// openWithin returns the blocks that have all open samples of a range, oldest first, in the memory of blocks.
func (s *shard) openWithin(r *record, within model.TimeRange, blocks *openBlocks) []uint32 {
	ref, count := s.openUntil(r, within.EndMS)
	if r.disorder.is(mixed) || within.StartMS <= r.base {
		s.openFrom(ref, blocks[:count])
		return blocks[:count]
	}
	at := count
	for ref != 0 {
		at--
		blocks[at] = ref
		b := s.block(ref)
		if r.base+int64(b.offset[0]) <= within.StartMS {
			break
		}
		ref = b.older
	}
	return blocks[at:count]
}

// openUntil returns a block of r after which all open samples are later than a time, and how many
// blocks there are up to it. It skips blocks of a series in order, each of which would be read from
// memory that no cache holds.
func (s *shard) openUntil(r *record, endMS int64) (ref uint32, count int) {
	ref, count = r.newest, (int(r.open)+blockSize-1)/blockSize
	if ref == 0 || r.disorder.is(mixed) || endMS >= r.max {
		return ref, count
	}
	for {
		skip := s.block(ref).skip
		if skip == 0 || r.base+int64(s.block(skip).offset[0]) <= endMS {
			return ref, count
		}
		ref, count = skip, skipped(count)
	}
}

// openFrom lists a block and all that are older, oldest first. The processor reads the blocks
// between a block and its skip target while it already reads the target: together they take about
// half of the time that one after the other would.
func (s *shard) openFrom(ref uint32, list []uint32) {
	for at := len(list); at > 0; {
		b := s.block(ref)
		to := skipped(at)
		for older := ref; at > to; older = s.block(older).older {
			at--
			list[at] = older
		}
		ref = b.skip
	}
}

// skipped returns how many blocks there are up to the skip target of the last
// of count blocks.
func skipped(count int) int { return max(0, (count+skipBlocks-2)/skipBlocks*skipBlocks-skipBlocks+1) }

// openIn returns how many samples a block of r has: only the newest one may have room.
func (r *record) openIn(ref uint32) int {
	if ref == r.newest {
		return int(r.open-1)%blockSize + 1
	}
	return blockSize
}

// copyOpen appends r's open samples of a range in arrival order; times may repeat.
func (s *shard) copyOpen(r *record, within model.TimeRange, c *model.Columns, stamps bool) {
	var blocks openBlocks
	for _, ref := range s.openWithin(r, within, &blocks) {
		b := s.block(ref)
		for i := range r.openIn(ref) {
			ms := r.base + int64(b.offset[i])
			if !within.Contains(ms) {
				continue
			}
			switch {
			case r.kind.Fixed():
				c.AppendFixed(ms, b.value[i], r.ttl)
			case r.kind.Variable():
				at, size := b.value[i]>>32, b.value[i]&math.MaxUint32
				c.AppendBytes(ms, s.data[at:at+size], r.ttl)
			default:
				c.AppendNull(ms, r.ttl)
			}
			if stamps {
				c.Stamps = append(c.Stamps, s.stampBase+int64(s.stampsOf(ref)[i]))
			}
		}
	}
}

const fragmentHeader = 4 + 4 + 8 + 8

// store appends a fragment of s.encoded and s.codes to the arena and returns its
// reference. A fragment larger than an arena block has a block of its own.
func (s *shard) store(older uint32, firstMS, lastMS int64) uint32 {
	need := int(s.fragmentBytes())
	last := len(s.arena) - 1
	if last < 0 || len(s.arena[last])+need > cap(s.arena[last]) {
		last++
		size := min(arenaBytes, arenaFirst<<min(last, arenaBits))
		s.arena = append(s.arena, make([]byte, 0, max(size, need)))
	}
	a := s.arena[last]
	ref := fragmentRef(last, len(a))
	a = binary.LittleEndian.AppendUint32(a, older)
	a = binary.LittleEndian.AppendUint32(a, uint32(len(s.encoded)))
	a = binary.LittleEndian.AppendUint64(a, uint64(firstMS))
	a = binary.LittleEndian.AppendUint64(a, uint64(lastMS))
	a = append(a, s.encoded...)
	a = append(a, s.codes...)
	for len(a)%fragmentAlign != 0 {
		a = append(a, 0)
	}
	s.arena[last] = a
	return ref
}

// fragmentBytes is the size of a fragment of s.encoded and s.codes in the arena.
func (s *shard) fragmentBytes() int64 {
	return (fragmentHeader + int64(len(s.encoded)) + int64(len(s.codes)) + fragmentAlign - 1) / fragmentAlign * fragmentAlign
}

// fragmentRef is the reference of a fragment at an offset in an arena block; 0 is none.
func fragmentRef(block, offset int) uint32 {
	return uint32((uint64(block)<<arenaBits|uint64(offset))/fragmentAlign) + 1
}

// place is the inverse of fragmentRef.
func place(ref uint32) (block, offset int) {
	at := uint64(ref-1) * fragmentAlign
	return int(at >> arenaBits), int(at & (arenaBytes - 1))
}
