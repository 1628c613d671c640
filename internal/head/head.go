// Package head keeps the samples that are not in files yet, in memory. It knows
// nothing of logs, files or tags: the embedded store feeds it from its
// write-ahead log, a Cassandra layout may feed it from a journal.
//
// # Layout
//
// A series has a 56-byte record without pointers, in pages of 64 that exist
// only where a series has samples. Its newest samples are open: a chain of
// micro-blocks of 8 samples in slabs, so that a series with 3 samples costs
// little and growing strands no memory. At 32 open samples (256 where values
// are byte strings) the chain is sorted and sealed into a fragment, a chunk of
// package chunk in an append-only arena, and its micro-blocks are reused:
//
//	series record --> open:      block -> block -> block      (arrival order)
//	              \-> fragments: newest -> older -> oldest    (each sorted)
//
//	fragment: +-----------+---------+--------+--------+-------------+
//	          | older u32 | len u32 | first  | last   | chunk       |
//	          |           |         | i64 ms | i64 ms | (see chunk) |
//	          +-----------+---------+--------+--------+-------------+
//
// Series ids are spread over 64 shards by (id/64)%64, so that neighbours, which
// senders write together, share a lock and a page.
//
// # Invariants
//
//   - Samples of one series are applied in the order of the Append calls that
//     carry them; the caller orders those calls. The last one wins.
//   - A fragment never changes, so it is decoded without holding a lock.
//   - A series whose samples all came in increasing time has ordered set; then
//     fragments and open samples are one ascending sequence.
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

	sealFixed    = 32  // open samples of a fixed or null series before sealing
	sealVariable = 256 // of a variable kind: sealing gains less there

	slabBlocks = 256
	arenaBytes = 256 << 10
)

// Head holds samples of many series. All methods may be called concurrently,
// except that Append and Delete calls are ordered by the caller.
type Head struct {
	shards  [shardCount]shard
	samples atomic.Int64
	bytes   atomic.Int64
}

type shard struct {
	mu    sync.RWMutex
	pages []*page // index: id / 4096 of the shard's ids
	slabs [][]block
	used  uint32 // blocks handed out of slabs
	free  uint32 // chain of unused blocks, 0 = none
	arena [][]byte
	data  []byte // values of variable kinds that are open

	scratch model.Columns
	sorter  sorter
	encoded []byte
}

type page [pageSize]record

// record is the state of one series. Block and fragment references are 0 for
// none.
type record struct {
	base      int64 // times of open blocks are offsets from base
	min, max  int64 // of all samples ever applied, valid if count > 0
	first     uint32
	tail      uint32
	fragment  uint32
	count     uint32 // samples applied, duplicates counted
	open      uint32 // samples in open blocks
	ttl       uint32 // of the open samples
	fragments uint32
	kind      model.Kind
	shuffled  bool // some sample did not come after all before it
}

// block holds up to 8 samples in arrival order.
type block struct {
	offset [blockSize]int32 // ms from the record's base
	next   uint32
	value  [blockSize]uint64
}

const (
	recordBytes = int64(unsafe.Sizeof(record{}))
	blockBytes  = int64(unsafe.Sizeof(block{}))
	pageBytes   = pageSize * recordBytes
)

// New returns an empty head.
func New() *Head { return &Head{} }

// Samples is the number of samples applied, overwritten ones included.
func (h *Head) Samples() int64 { return h.samples.Load() }

// Bytes is the memory that samples and records take, without spare room.
func (h *Head) Bytes() int64 { return h.bytes.Load() }

func locate(id uint32) (shardIndex, pageIndex, slot uint32) {
	return id / pageSize % shardCount, id / (pageSize * shardCount), id % pageSize
}

// Append applies the samples of b in order. kinds[i] is the kind of sample i's
// series; it is the same in every call.
func (h *Head) Append(b *store.Batch, kinds []model.Kind) {
	var (
		s       *shard
		current uint32 = math.MaxUint32
		grown   int64
	)
	for i := range b.Samples {
		sample := &b.Samples[i]
		si, pi, slot := locate(uint32(sample.Ref))
		if si != current {
			if s != nil {
				s.mu.Unlock()
			}
			s, current = &h.shards[si], si
			s.mu.Lock()
		}
		p, added := s.page(pi)
		grown += added
		value := sample.Value
		if kinds[i].Variable() {
			value, added = s.keep(b.Bytes(*sample))
			grown += added
		}
		grown += s.add(&p[slot], kinds[i], sample.TimeMS, value, sample.TTL)
	}
	if s != nil {
		s.mu.Unlock()
	}
	h.samples.Add(int64(len(b.Samples)))
	h.bytes.Add(grown)
}

// page returns the i-th page, made if need be, and the bytes it added.
func (s *shard) page(i uint32) (*page, int64) {
	for uint32(len(s.pages)) <= i {
		s.pages = append(s.pages, nil)
	}
	if s.pages[i] != nil {
		return s.pages[i], 0
	}
	s.pages[i] = new(page)
	return s.pages[i], pageBytes
}

// keep copies a variable value and returns its place as offset<<32 | length.
func (s *shard) keep(v []byte) (uint64, int64) {
	at := uint64(len(s.data))
	s.data = append(s.data, v...)
	return at<<32 | uint64(len(v)), int64(len(v))
}

// add applies one sample and returns by how many bytes the shard grew.
// s.mu must be held.
func (s *shard) add(r *record, kind model.Kind, ms int64, value uint64, ttl uint32) (grown int64) {
	if r.count == 0 {
		*r = record{kind: kind, min: ms, max: ms, base: ms, ttl: ttl}
	} else {
		if ms <= r.max {
			r.shuffled = true
		}
		r.min, r.max = min(r.min, ms), max(r.max, ms)
	}
	offset := ms - r.base
	if r.open > 0 && (ttl != r.ttl || int64(int32(offset)) != offset) {
		grown += s.seal(r)
	}
	if r.open == 0 {
		r.base, r.ttl, offset = ms, ttl, 0
	}
	at := r.open % blockSize
	if at == 0 {
		n := s.newBlock()
		if r.first == 0 {
			r.first = n
		} else {
			s.block(r.tail).next = n
		}
		r.tail = n
		grown += blockBytes
	}
	b := s.block(r.tail)
	b.offset[at], b.value[at] = int32(offset), value
	r.open++
	r.count++
	if r.open == sealFixed && !kind.Variable() || r.open == sealVariable {
		grown += s.seal(r)
	}
	return grown
}

func (s *shard) block(ref uint32) *block { return &s.slabs[(ref-1)/slabBlocks][(ref-1)%slabBlocks] }

func (s *shard) newBlock() uint32 {
	if s.free != 0 {
		ref := s.free
		b := s.block(ref)
		s.free, b.next = b.next, 0
		return ref
	}
	if int(s.used) == len(s.slabs)*slabBlocks {
		s.slabs = append(s.slabs, make([]block, slabBlocks))
	}
	s.used++
	return s.used
}

// seal turns r's open samples into a fragment. s.mu must be held.
func (s *shard) seal(r *record) (grown int64) {
	c := &s.scratch
	c.Reset()
	s.copyOpen(r, c)
	s.sorter.sort(r.kind, c)
	s.encoded = chunk.Append(s.encoded[:0], r.kind, c, 0, c.Len(), chunk.Fast)
	r.fragment = s.store(r.fragment, c.Times[0], c.Times[c.Len()-1], s.encoded)
	r.fragments++
	blocks := int64(r.open+blockSize-1) / blockSize
	s.block(r.tail).next, s.free = s.free, r.first
	r.first, r.tail, r.open = 0, 0, 0
	return fragmentHeader + int64(len(s.encoded)) - blocks*blockBytes
}

// copyOpen appends r's open samples in arrival order; times may repeat.
func (s *shard) copyOpen(r *record, c *model.Columns) {
	ref := r.first
	for left := r.open; left > 0; {
		b := s.block(ref)
		n := min(left, blockSize)
		for i := range n {
			ms := r.base + int64(b.offset[i])
			switch {
			case r.kind.Fixed():
				c.AppendFixed(ms, b.value[i], r.ttl)
			case r.kind.Variable():
				at, size := b.value[i]>>32, b.value[i]&math.MaxUint32
				c.AppendBytes(ms, s.data[at:at+size], r.ttl)
			default:
				c.AppendNull(ms, r.ttl)
			}
		}
		left -= n
		ref = b.next
	}
}

const fragmentHeader = 4 + 4 + 8 + 8

// store appends a fragment to the arena and returns its reference: arena
// block << 18 | offset, plus 1.
func (s *shard) store(older uint32, firstMS, lastMS int64, encoded []byte) uint32 {
	need := fragmentHeader + len(encoded)
	last := len(s.arena) - 1
	if last < 0 || len(s.arena[last])+need > cap(s.arena[last]) {
		s.arena = append(s.arena, make([]byte, 0, max(arenaBytes, need)))
		last++
	}
	a := s.arena[last]
	ref := uint32(last)<<18 | uint32(len(a)) + 1
	a = binary.LittleEndian.AppendUint32(a, older)
	a = binary.LittleEndian.AppendUint32(a, uint32(len(encoded)))
	a = binary.LittleEndian.AppendUint64(a, uint64(firstMS))
	a = binary.LittleEndian.AppendUint64(a, uint64(lastMS))
	s.arena[last] = append(a, encoded...)
	return ref
}
