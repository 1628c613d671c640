package chunk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"varve/internal/model"
)

const (
	// pageVersion is the first byte of a page. A change of the format takes the next
	// number; numbers are never reused.
	pageVersion  = 1
	checksumSize = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// PageBuilder collects chunks of many series in a page. Call Reset before the first
// Add; after Finish, Reset begins the next page. It reuses its memory.
type PageBuilder struct {
	enc     encoder
	buf     []byte
	body    []byte
	entries int

	series model.SeriesNumber // of the previous entry
	last   int64              // last time of the previous entry
	kind   model.Kind
	base   int64 // first time of the page's first entry
	ttl    uint32

	// The latest columns of times that entries carried: a ring.
	kept    [timesKept][]int64
	carried int
}

// Reset begins a page.
func (b *PageBuilder) Reset(level Level) {
	b.enc.level = level
	b.buf = append(b.buf[:0], pageVersion)
	b.entries, b.series, b.kind, b.base, b.ttl, b.carried = 0, 0, 0, 0, 0, 0
}

// Size returns the size in bytes of the page if it were finished now.
func (b *PageBuilder) Size() int { return len(b.buf) + checksumSize }

// Entries returns the number of chunks added.
func (b *PageBuilder) Entries() int { return b.entries }

// Add appends the samples [from,to) of c, 1 to MaxSamples, as a chunk of a series.
// Chunks must be ordered by series, then time, and must not overlap; Add panics
// otherwise.
func (b *PageBuilder) Add(series model.SeriesNumber, kind model.Kind, c *model.Columns, from, to int) {
	checkRange(kind, c, from, to)
	times := c.Times[from:to]
	if b.entries > 0 && (series < b.series || series == b.series && times[0] <= b.last) {
		panic(fmt.Sprintf("chunk: series %d at %d ms added after series %d at %d ms", series, times[0], b.series, b.last))
	}
	h := b.header(series, kind, c, from, to)
	body, info := b.columns(&h, kind, c, from, to)
	dst := b.appendHeader(&h, kind, times)
	if h.flags&flagTTL == ttlColumn {
		dst = binary.AppendUvarint(dst, expiryAfter(c, from, to))
	}
	if kind.Fixed() && len(times) >= statsMin {
		n := len(dst)
		if dst = appendStats(dst, kind, c.Values[from:to], info); len(dst) > n {
			dst[h.at] |= flagStats
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(body)))
	b.buf, b.body = append(dst, body...), body

	if b.entries == 0 {
		b.base = times[0]
	}
	b.entries++
	b.series, b.kind, b.last = series, kind, times[len(times)-1]
}

type entryHeader struct {
	step  uint32 // from the previous series
	flags byte
	at    int // offset of the flags in the page, once appended
	back  int // timesShared, timesEarlier
	ttl   uint32
}

// header chooses how times and times-to-live are written.
func (b *PageBuilder) header(series model.SeriesNumber, kind model.Kind, c *model.Columns, from, to int) entryHeader {
	times := c.Times[from:to]
	h := entryHeader{step: uint32(series - b.series)}
	back, shared := b.find(times)
	switch {
	case shared && back > 0:
		h.flags, h.back = timesEarlier, back
	case shared:
		h.flags = timesShared
	case regular(times):
		h.flags = timesRegular
	default:
		h.flags = timesCoded
	}
	mode, ttl := ttlOf(c, from, to)
	if mode == ttlConst && ttl == b.ttl {
		mode = ttlSame
	}
	h.flags |= mode
	h.ttl = ttl
	if kind != b.kind {
		h.flags |= flagKind
	}
	return h
}

// columns writes the columns to scratch memory.
func (b *PageBuilder) columns(h *entryHeader, kind model.Kind, c *model.Columns, from, to int) ([]byte, doubleInfo) {
	body := b.body[:0]
	if h.flags&flagTimes == timesCoded {
		body = b.enc.appendTimes(body, c.Times[from:to])
	}
	if h.flags&flagTTL == ttlColumn {
		body = b.enc.appendTTLs(body, c.TTLs[from:to])
	}
	return b.enc.appendValues(body, kind, c, from, to)
}

// appendHeader appends the header up to a constant time-to-live and records what later
// entries may refer to.
func (b *PageBuilder) appendHeader(h *entryHeader, kind model.Kind, times []int64) []byte {
	dst := binary.AppendUvarint(b.buf, uint64(h.step))
	h.at = len(dst)
	dst = append(dst, h.flags)
	if h.flags&flagKind != 0 {
		dst = append(dst, byte(kind))
	}
	switch h.flags & flagTimes {
	case timesEarlier:
		dst = append(dst, byte(h.back))
	case timesRegular, timesCoded:
		dst = binary.AppendUvarint(dst, uint64(len(times)))
		dst = appendVarint(dst, uint64(times[0])-uint64(b.base))
		dst = binary.AppendUvarint(dst, uint64(times[len(times)-1])-uint64(times[0]))
		b.keep(times)
	}
	if h.flags&flagTTL == ttlConst {
		dst = binary.AppendUvarint(dst, uint64(h.ttl))
		b.ttl = h.ttl
	}
	return dst
}

// find looks for a kept column of equal times; back counts from the latest.
func (b *PageBuilder) find(times []int64) (back int, ok bool) {
	for back := range min(b.carried, timesKept) {
		if slices.Equal(times, b.kept[(b.carried-1-back)%timesKept]) {
			return back, true
		}
	}
	return 0, false
}

func (b *PageBuilder) keep(times []int64) {
	k := &b.kept[b.carried%timesKept]
	*k = append((*k)[:0], times...)
	b.carried++
}

// expiryAfter returns the time in ms from the last sample of [from,to) to the latest
// expiry among them, 0 if one of them never expires.
func expiryAfter(c *model.Columns, from, to int) uint64 {
	latest := int64(math.MinInt64)
	for i := from; i < to; i++ {
		latest = max(latest, model.ExpiryMS(c.Times[i], c.TTLs[i]))
	}
	if latest == math.MaxInt64 {
		return 0
	}
	return uint64(latest) - uint64(c.Times[to-1])
}

// Finish appends the page to dst.
func (b *PageBuilder) Finish(dst []byte) []byte {
	dst = append(dst, b.buf...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(b.buf, castagnoli))
}
