package chunk

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/huff0"

	"varve/internal/model"
)

// MaxSamples is the most samples of one chunk.
const MaxSamples = 65535

// TargetSamples is the size to aim for: smaller chunks cost more bytes per sample, and
// larger ones make narrow queries decode samples that they do not need.
const TargetSamples = 1024

// Level is the effort of encoding.
type Level uint8

const (
	// Fast is for data that is soon rewritten: head fragments, checkpoints.
	Fast Level = iota
	// Best adds entropy coding where it pays. Decoding that is about half as fast.
	Best
)

// Flags of a chunk; the lowest two bits are the encoding of its times. The numbers are
// on disk.
const (
	flagTimes   = 0x03
	flagTTL     = 0x0c
	flagStats   = 0x10 // pages only
	flagKind    = 0x20 // pages only: the kind differs from the previous entry's
	flagUnknown = 0xc0

	ttlNone   = 0 << 2
	ttlSame   = 1 << 2 // pages only: one for all samples, as last stated in the page
	ttlConst  = 2 << 2 // one for all samples
	ttlColumn = 3 << 2
)

// encoder holds the scratch memory of encoding. Buffers are named after their writers;
// no two uses of a buffer overlap.
type encoder struct {
	level       Level
	sample      [sampleSize]uint64
	widths      [2][128]int32
	ranks       [1 << 12]uint16
	symbolCount [256]uint32
	tops        []uint16
	deltas      []uint64
	deltas2     []uint64
	residual    []uint64
	ints        []uint64
	part        []uint64
	outliers    []outlier
	exceptions  []int
	alternative []byte
	coded       []byte
	symbols     []byte
	compressed  []byte
	distinct    []byte
	table       []uint32
	ordinals    []uint64
	firsts      []int
	huffman     *huff0.Scratch
	plain       []byte        // aggregates without their sketches
	sketches    model.Columns // only the sketches
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// release returns e to the pool, without buffers that large values have grown.
func (e *encoder) release() {
	const keep = 1 << 20
	if cap(e.distinct) > keep {
		e.distinct = nil
	}
	if cap(e.compressed) > keep {
		e.compressed = nil
	}
	if cap(e.plain)+cap(e.sketches.Data) > keep {
		e.plain, e.sketches = nil, model.Columns{}
	}
	encoders.Put(e)
}

// Append appends the samples [from,to) of c as one chunk. There must be 1 to
// MaxSamples, and their times must strictly increase; Append panics otherwise. The
// chunk contains its own end, so that others may follow; it contains neither its kind
// nor a checksum.
func Append(dst []byte, kind model.Kind, c *model.Columns, from, to int, level Level) []byte {
	checkRange(kind, c, from, to)
	e := encoders.Get().(*encoder)
	defer e.release()
	e.level = level

	times := c.Times[from:to]
	flags := byte(timesCoded)
	if regular(times) {
		flags = timesRegular
	}
	ttlMode, ttl := ttlOf(c, from, to)
	flags |= ttlMode

	dst = append(binary.AppendUvarint(dst, uint64(len(times))), flags)
	dst = appendVarint(dst, uint64(times[0]))
	dst = binary.AppendUvarint(dst, uint64(times[len(times)-1])-uint64(times[0]))
	if ttlMode == ttlConst {
		dst = binary.AppendUvarint(dst, uint64(ttl))
	}
	if flags&flagTimes == timesCoded {
		dst = e.appendTimes(dst, times)
	}
	if ttlMode == ttlColumn {
		dst = e.appendTTLs(dst, c.TTLs[from:to])
	}
	dst, _ = e.appendValues(dst, kind, c, from, to)
	return dst
}

// checkRange panics on input that could not be read back.
func checkRange(kind model.Kind, c *model.Columns, from, to int) {
	if from < 0 || to > c.Len() || from >= to || to-from > MaxSamples || !kind.Valid() {
		panic(fmt.Sprintf("chunk: %s samples [%d,%d) of %d, at most %d at once", kind, from, to, c.Len(), MaxSamples))
	}
	previous := c.Times[from]
	for _, ms := range c.Times[from+1 : to] {
		if ms <= previous {
			panic(fmt.Sprintf("chunk: sample at %d ms after sample at %d ms", ms, previous))
		}
		previous = ms
	}
}

// ttlOf returns how the times-to-live of [from,to) are written.
func ttlOf(c *model.Columns, from, to int) (mode byte, ttl uint32) {
	if len(c.TTLs) == 0 {
		return ttlNone, 0
	}
	ttls := c.TTLs[from:to]
	for _, t := range ttls[1:] {
		if t != ttls[0] {
			return ttlColumn, 0
		}
	}
	if ttls[0] == 0 {
		return ttlNone, 0
	}
	return ttlConst, ttls[0]
}

func (e *encoder) appendTTLs(dst []byte, ttls []uint32) []byte {
	ints := resize(&e.ints, len(ttls))
	for i, t := range ttls {
		ints[i] = uint64(t)
	}
	return e.appendInts(dst, ints)
}

// appendValues appends the value column. The second result says how fixed values were
// written.
func (e *encoder) appendValues(dst []byte, kind model.Kind, c *model.Columns, from, to int) ([]byte, doubleInfo) {
	switch {
	case kind == model.Long:
		vals := c.Values[from:to]
		p := e.planInts(vals)
		dst = e.appendPlan(dst, &p)
		return dst, doubleInfo{decimal: true, mantissas: summarise(vals, p.values)}
	case kind == model.Double:
		return e.appendDoubles(dst, c.Values[from:to])
	case kind.Variable():
		return e.appendBytes(dst, kind, c, from, to), doubleInfo{}
	}
	return dst, doubleInfo{}
}

// Decoder decodes chunks. It holds scratch memory, as large as the largest chunk so far
// needed, and remembers the times that chunks of a page share. The zero value is ready
// for use by one goroutine at a time.
type Decoder struct {
	numbers    []uint64
	column     []uint64
	part       []uint64
	offsets    []uint64
	tops       []uint64
	outliers   []outlier
	exceptions []outlier
	symbols    []byte
	expanded   []byte
	huff       *huff0.Scratch
	plain      model.Columns // aggregates without their sketches
	sketches   model.Columns // only the sketches
	fresh      model.Columns // without markers of staleness

	times    []int64  // of the column that timesOf names
	timesOf  timesKey // zero: none
	timesEnd int      // offset after that column
}

// Decode appends the samples of the chunk at the start of src, which must be
// of the given kind, to dst, and returns what follows the chunk. After an
// error, a *FormatError, dst is as before.
func (d *Decoder) Decode(src []byte, kind model.Kind, dst *model.Columns) (rest []byte, err error) {
	r := reader{b: src}
	h := readHeader(&r, kind)
	if r.err == nil {
		d.body(&r, &h, dst)
	}
	if r.err != nil {
		return nil, r.err
	}
	return src[r.pos:], nil
}

// Count returns the number of samples of the chunk at the start of src, which
// Append has written.
func Count(src []byte) int {
	n, _ := binary.Uvarint(src)
	return int(n)
}

// header is the header of a chunk.
type header struct {
	kind        model.Kind
	flags       byte
	count       int
	first, last int64
	ttl         uint32 // ttlConst, ttlSame
}

// readHeader reads the header of a chunk outside a page.
func readHeader(r *reader, kind model.Kind) header {
	count, flags := r.uvarint(), r.u8()
	h := header{kind: kind, flags: flags}
	if flags&^(flagTimes|flagTTL) != 0 || flags&flagTTL == ttlSame ||
		flags&flagTimes != timesRegular && flags&flagTimes != timesCoded {
		r.fail("unknown chunk flags %#x", flags)
	}
	h.span(r, count, 0)
	if flags&flagTTL == ttlConst {
		h.readTTL(r)
	}
	return h
}

// span reads the first and the last time; the first is relative to base.
func (h *header) span(r *reader, count uint64, base int64) {
	if count == 0 || count > MaxSamples {
		r.fail("%d samples, 1 to %d possible", count, MaxSamples)
		return
	}
	h.count = int(count)
	h.first = int64(uint64(base) + uint64(r.varint()))
	span := r.uvarint()
	h.last = int64(uint64(h.first) + span)
	switch {
	case r.err != nil:
	case span < count-1 || count == 1 && span != 0 || h.last < h.first:
		r.fail("%d samples from %d ms on in a span of %d ms", count, h.first, span)
	case count > 1 && h.flags&flagTimes == timesRegular && span%(count-1) != 0:
		r.fail("%d samples at equal steps in a span of %d ms", count, span)
	}
}

func (h *header) readTTL(r *reader) {
	ttl := r.uvarint()
	if r.err == nil && (ttl == 0 || ttl > 1<<32-1) {
		r.fail("time-to-live of %d s", ttl)
	}
	h.ttl = uint32(ttl)
}

// body reads the columns of a chunk and appends its samples to dst.
func (d *Decoder) body(r *reader, h *header, dst *model.Columns) {
	before := *dst
	switch h.flags & flagTimes {
	case timesRegular:
		dst.Times = regularTimes(dst.Times, h.count, h.first, h.last)
	case timesCoded:
		dst.Times = d.codedTimes(r, dst.Times, h.count, h.first, h.last)
	}
	d.columns(r, h, dst, len(before.Times))
	if r.err != nil {
		*dst = before
	}
}

// columns reads what follows the times. Samples of dst before at belong to earlier
// chunks.
func (d *Decoder) columns(r *reader, h *header, dst *model.Columns, at int) {
	d.ttls(r, h, dst, at)
	if r.err != nil {
		return
	}
	switch {
	case h.kind.Fixed():
		dst.Values = slices.Grow(dst.Values, h.count)
		n := len(dst.Values)
		dst.Values = dst.Values[:n+h.count]
		if h.kind == model.Long {
			d.ints(r, dst.Values[n:])
		} else {
			d.doubles(r, dst.Values[n:])
		}
	case h.kind.Variable():
		d.bytes(r, dst, h.count)
	case !h.kind.Valid():
		r.fail("unknown kind %d", h.kind)
	}
}

// ttls appends h.count times-to-live to dst if the chunk or dst has any.
func (d *Decoder) ttls(r *reader, h *header, dst *model.Columns, at int) {
	if h.flags&flagTTL == ttlNone && len(dst.TTLs) == 0 {
		return
	}
	ttls := slices.Grow(dst.TTLs, at+h.count-len(dst.TTLs))
	have := len(ttls)
	ttls = ttls[:at+h.count]
	clear(ttls[have:])
	dst.TTLs = ttls
	ttls = ttls[at:]
	switch h.flags & flagTTL {
	case ttlSame, ttlConst:
		for i := range ttls {
			ttls[i] = h.ttl
		}
	case ttlColumn:
		ints := resize(&d.numbers, h.count)
		d.ints(r, ints)
		for i, t := range ints {
			ttls[i] = uint32(t)
		}
	}
}
