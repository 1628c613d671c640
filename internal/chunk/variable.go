package chunk

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"varve/internal/model"
)

// Tags of a column of byte strings. The numbers are on disk.
const (
	bytesPlain      = 0 // lengths, bytes
	bytesDictionary = 1 // distinct values as a plain column, then their ranks
	bytesComplex    = 2 // see complexParts
	bytesAggregate  = 3 // see aggregateParts
	bytesSketched   = 4 // as bytesAggregate, then the sketches as a plain or dictionary column

	// bytesCompressed: the bytes are zstd, preceded by both lengths.
	bytesCompressed = 0x10
)

const (
	// MaxExpandedBytes bounds the decoded size of a chunk's values. A chunk with more
	// bytes of values is written without dictionary and compression, so it cannot grow.
	MaxExpandedBytes = 16 << 20

	compressMin = 64 // bytes: for fewer a zstd frame does not pay
)

// A part is a word of a value that consists of several. In a chunk whose values all
// have the size of their parts, each part is a column of its own.
type part byte

const (
	partDouble part = iota
	partLong
	partTime // ms, written as the distance from the sample's own time
)

var (
	complexParts   = []part{partDouble, partDouble}
	aggregateParts = []part{partDouble, partLong, partDouble, partDouble, partDouble, partTime} // of model.Aggregate
)

// appendBytes appends the values [from,to) of c as a column of byte strings.
func (e *encoder) appendBytes(dst []byte, kind model.Kind, c *model.Columns, from, to int) []byte {
	data := c.Data[c.Offsets[from]:c.Offsets[to]]
	switch {
	case kind == model.Complex && allOfSize(c, from, to, 8*len(complexParts)):
		return e.appendParts(append(dst, bytesComplex), complexParts, data, c.Times[from:to])
	case kind == model.AggregateKind && allOfSize(c, from, to, 8*len(aggregateParts)):
		return e.appendParts(append(dst, bytesAggregate), aggregateParts, data, c.Times[from:to])
	case kind == model.AggregateKind && allFrom(c, from, to, 8*len(aggregateParts)):
		return e.appendSketched(append(dst, bytesSketched), c, from, to)
	}
	if len(data) <= MaxExpandedBytes {
		if distinct := e.rank(c, from, to); distinct*2 <= to-from {
			return e.appendDictionary(dst, c)
		}
	}
	lengths := resize(&e.ints, to-from)
	for i := range lengths {
		lengths[i] = uint64(c.Offsets[from+i+1] - c.Offsets[from+i])
	}
	return e.appendStrings(dst, lengths, data)
}

func allOfSize(c *model.Columns, from, to, size int) bool {
	for i := from; i < to; i++ {
		if int(c.Offsets[i+1]-c.Offsets[i]) != size {
			return false
		}
	}
	return true
}

// allFrom reports whether all values have at least size bytes.
func allFrom(c *model.Columns, from, to, size int) bool {
	for i := from; i < to; i++ {
		if int(c.Offsets[i+1]-c.Offsets[i]) < size {
			return false
		}
	}
	return true
}

// appendSketched appends aggregates, some of which have a sketch.
func (e *encoder) appendSketched(dst []byte, c *model.Columns, from, to int) []byte {
	size := 8 * len(aggregateParts)
	e.plain, e.sketches.Data, e.sketches.Offsets = e.plain[:0], e.sketches.Data[:0], append(e.sketches.Offsets[:0], 0)
	for i := from; i < to; i++ {
		v := c.Bytes(i)
		e.plain = append(e.plain, v[:size]...)
		e.sketches.Data = append(e.sketches.Data, v[size:]...)
		e.sketches.Offsets = append(e.sketches.Offsets, uint32(len(e.sketches.Data)))
	}
	dst = e.appendParts(dst, aggregateParts, e.plain, c.Times[from:to])
	return e.appendBytes(dst, model.Custom, &e.sketches, 0, to-from)
}

// appendStrings appends a tag, lengths, and the bytes of all strings, compressed if that
// is smaller.
func (e *encoder) appendStrings(dst []byte, lengths []uint64, data []byte) []byte {
	at := len(dst)
	dst = append(dst, bytesPlain)
	dst = e.appendInts(dst, lengths)
	if e.level == Best && len(data) >= compressMin && len(data) <= MaxExpandedBytes {
		e.compressed = compress(e.compressed[:0], data)
		if len(e.compressed)*10 < len(data)*9 {
			dst[at] |= bytesCompressed
			dst = binary.AppendUvarint(dst, uint64(len(data)))
			dst = binary.AppendUvarint(dst, uint64(len(e.compressed)))
			return append(dst, e.compressed...)
		}
	}
	return append(dst, data...)
}

// appendDictionary appends each distinct value once, then the rank of every
// value. rank must have run.
func (e *encoder) appendDictionary(dst []byte, c *model.Columns) []byte {
	lengths := resize(&e.ints, len(e.firsts))
	e.distinct = e.distinct[:0]
	for i, at := range e.firsts {
		v := c.Bytes(at)
		lengths[i] = uint64(len(v))
		e.distinct = append(e.distinct, v...)
	}
	dst = append(dst, bytesDictionary)
	dst = binary.AppendUvarint(dst, uint64(len(lengths)))
	dst = e.appendStrings(dst, lengths, e.distinct)
	return e.appendInts(dst, e.ordinals)
}

var hashSeed = maphash.MakeSeed()

// rank numbers the distinct values of [from,to) by first occurrence:
// e.ordinals has each value's number, e.firsts where each number first occurs.
func (e *encoder) rank(c *model.Columns, from, to int) (distinct int) {
	n := to - from
	slots := 4
	for slots < 2*n {
		slots *= 2
	}
	table := resize(&e.table, slots) // 1 + number of the value, 0 = free
	clear(table)
	ordinals := resize(&e.ordinals, n)
	e.firsts = e.firsts[:0]
	for i := range ordinals {
		v := c.Bytes(from + i)
		slot := maphash.Bytes(hashSeed, v) & uint64(slots-1)
		for table[slot] != 0 && !bytes.Equal(c.Bytes(e.firsts[table[slot]-1]), v) {
			slot = (slot + 1) & uint64(slots-1)
		}
		if table[slot] == 0 {
			e.firsts = append(e.firsts, from+i)
			table[slot] = uint32(len(e.firsts))
		}
		ordinals[i] = uint64(table[slot] - 1)
	}
	return len(e.firsts)
}

// appendParts appends one column per part.
func (e *encoder) appendParts(dst []byte, parts []part, data []byte, times []int64) []byte {
	words := resize(&e.part, len(times))
	for at, kind := range parts {
		for i := range words {
			words[i] = binary.BigEndian.Uint64(data[8*(i*len(parts)+at):])
			if kind == partTime {
				words[i] -= uint64(times[i])
			}
		}
		if kind == partDouble {
			dst, _ = e.appendDoubles(dst, words)
		} else {
			dst = e.appendInts(dst, words)
		}
	}
	return dst
}

// bytes reads a column of n byte strings and appends them to dst.
func (d *Decoder) bytes(r *reader, dst *model.Columns, n int) {
	switch tag := r.u8(); tag {
	case bytesComplex:
		d.parts(r, dst, complexParts, n)
	case bytesAggregate:
		d.parts(r, dst, aggregateParts, n)
	case bytesSketched:
		d.sketched(r, dst, n)
	default:
		d.texts(r, tag, dst, n)
	}
}

// texts reads a column of n byte strings that are not split into parts.
func (d *Decoder) texts(r *reader, tag byte, dst *model.Columns, n int) {
	switch tag {
	case bytesPlain, bytesPlain | bytesCompressed:
		lengths := resize(&d.numbers, n)
		data := d.strings(r, tag, lengths)
		if r.err == nil && d.room(r, dst, uint64(len(data))) {
			dst.Data = append(dst.Data, data...)
			appendOffsets(dst, lengths, uint64(len(dst.Data)-len(data)))
		}
	case bytesDictionary:
		d.dictionary(r, dst, n)
	default:
		r.fail("unknown column of byte strings %#x", tag)
	}
}

// room reports whether size more bytes can be addressed by dst's offsets.
func (d *Decoder) room(r *reader, dst *model.Columns, size uint64) bool {
	if uint64(len(dst.Data))+size > math.MaxUint32 {
		r.fail("%d bytes of values on top of %d are more than offsets can address", size, len(dst.Data))
		return false
	}
	return true
}

func appendOffsets(dst *model.Columns, lengths []uint64, at uint64) {
	if len(dst.Offsets) == 0 {
		dst.Offsets = append(dst.Offsets, uint32(at))
	}
	dst.Offsets = slices.Grow(dst.Offsets, len(lengths))
	for _, n := range lengths {
		at += n
		dst.Offsets = append(dst.Offsets, uint32(at))
	}
}

// strings reads what appendStrings has written after its tag: it fills lengths and
// returns all bytes, which are valid until the next call.
func (d *Decoder) strings(r *reader, tag byte, lengths []uint64) []byte {
	d.ints(r, lengths)
	if r.err != nil {
		return nil
	}
	total := uint64(0)
	for _, n := range lengths {
		if n > math.MaxUint32 {
			r.fail("byte string of %d bytes", n)
			return nil
		}
		total += n
	}
	if tag&bytesCompressed == 0 {
		return r.take(int(min(total, math.MaxInt32*2)))
	}
	size, packed := r.uvarint(), r.uvarint()
	if size != total || size > MaxExpandedBytes {
		r.fail("%d compressed bytes for values of %d, at most %d", size, total, MaxExpandedBytes)
		return nil
	}
	frame := r.take(int(min(packed, MaxExpandedBytes)))
	if r.err != nil {
		return nil
	}
	d.expanded = slices.Grow(d.expanded[:0], int(size))
	data, err := expand(d.expanded[:0:size], frame)
	if err != nil || uint64(len(data)) != size {
		r.fail("zstd: %d bytes of %d, %v", len(data), size, err)
		return nil
	}
	return data
}

func (d *Decoder) dictionary(r *reader, dst *model.Columns, n int) {
	count := r.uvarint()
	if count == 0 || count > uint64(n) {
		r.fail("%d distinct values of %d", count, n)
		return
	}
	tag := r.u8()
	if tag&^bytesCompressed != bytesPlain {
		r.fail("unknown dictionary %#x", tag)
		return
	}
	offsets := resize(&d.offsets, int(count)+1) // value i is data[offsets[i]:offsets[i+1]]
	data := d.strings(r, tag, offsets[1:])
	ranks := resize(&d.numbers, n)
	d.ints(r, ranks)
	if r.err != nil {
		return
	}
	offsets[0] = 0
	accumulate(offsets[1:], 0)
	total := uint64(0)
	for _, rank := range ranks {
		if rank >= count {
			r.fail("value %d of %d", rank, count)
			return
		}
		total += offsets[rank+1] - offsets[rank]
	}
	if total > MaxExpandedBytes {
		r.fail("values grow to %d bytes, at most %d", total, MaxExpandedBytes)
		return
	}
	if d.room(r, dst, total) {
		appendRanked(dst, data, offsets, ranks, int(total))
	}
}

// appendRanked appends the value of each rank, total bytes in all.
func appendRanked(dst *model.Columns, data []byte, offsets, ranks []uint64, total int) {
	if len(dst.Offsets) == 0 {
		dst.Offsets = append(dst.Offsets, uint32(len(dst.Data)))
	}
	dst.Data = slices.Grow(dst.Data, total)
	dst.Offsets = slices.Grow(dst.Offsets, len(ranks))
	for _, rank := range ranks {
		dst.Data = append(dst.Data, data[offsets[rank]:offsets[rank+1]]...)
		dst.Offsets = append(dst.Offsets, uint32(len(dst.Data)))
	}
}

// parts reads what appendParts has written. The times of the n samples are in dst.
func (d *Decoder) parts(r *reader, dst *model.Columns, parts []part, n int) {
	size := 8 * len(parts)
	if !d.room(r, dst, uint64(n*size)) {
		return
	}
	at, times := len(dst.Data), dst.Times[len(dst.Times)-n:]
	dst.Data = slices.Grow(dst.Data, n*size)[:at+n*size]
	words := resize(&d.part, n)
	for p, kind := range parts {
		if kind == partDouble {
			d.doubles(r, words)
		} else {
			d.ints(r, words)
		}
		if r.err != nil {
			return
		}
		for i, v := range words {
			if kind == partTime {
				v += uint64(times[i])
			}
			binary.BigEndian.PutUint64(dst.Data[at+i*size+8*p:], v)
		}
	}
	if len(dst.Offsets) == 0 {
		dst.Offsets = append(dst.Offsets, uint32(at))
	}
	dst.Offsets = slices.Grow(dst.Offsets, n)
	for i := range n {
		dst.Offsets = append(dst.Offsets, uint32(at+(i+1)*size))
	}
}

// sketched reads what appendSketched has written.
func (d *Decoder) sketched(r *reader, dst *model.Columns, n int) {
	d.plain.Reset()
	d.plain.Times = append(d.plain.Times, dst.Times[len(dst.Times)-n:]...)
	d.parts(r, &d.plain, aggregateParts, n)
	d.sketches.Reset()
	d.texts(r, r.u8(), &d.sketches, n)
	if r.err != nil || !d.room(r, dst, uint64(len(d.plain.Data)+len(d.sketches.Data))) {
		return
	}
	if len(dst.Offsets) == 0 {
		dst.Offsets = append(dst.Offsets, uint32(len(dst.Data)))
	}
	dst.Data = slices.Grow(dst.Data, len(d.plain.Data)+len(d.sketches.Data))
	dst.Offsets = slices.Grow(dst.Offsets, n)
	for i := range n {
		dst.Data = append(append(dst.Data, d.plain.Bytes(i)...), d.sketches.Bytes(i)...)
		dst.Offsets = append(dst.Offsets, uint32(len(dst.Data)))
	}
}

// zstd coders are large, so all encoders and decoders share a few.
var (
	zstdEncoders = sync.Pool{New: func() any {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(256<<10))
		if err != nil {
			panic("chunk: zstd encoder options: " + err.Error())
		}
		return w
	}}
	zstdDecoders = sync.Pool{New: func() any {
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(MaxExpandedBytes), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic("chunk: zstd decoder options: " + err.Error())
		}
		return r
	}}
)

func compress(dst, src []byte) []byte {
	w := zstdEncoders.Get().(*zstd.Encoder)
	defer zstdEncoders.Put(w)
	return w.EncodeAll(src, dst)
}

// expand decodes frame into dst, whose capacity bounds the result.
func expand(dst, frame []byte) ([]byte, error) {
	r := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(r)
	return r.DecodeAll(frame, dst)
}
