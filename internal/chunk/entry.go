package chunk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync/atomic"

	"varve/internal/model"
)

// Page is a page with a verified checksum. It shares the memory that was passed to
// OpenPage, which must not change as long as the Page or an Entry of it is in use. Any
// number of goroutines may read a Page.
type Page struct {
	b  []byte // without the checksum
	id uint64
}

// pageIDs identifies pages in a Decoder's memory of times. Unlike addresses of buffers,
// the numbers are never reused.
var pageIDs atomic.Uint64

// OpenPage verifies that b is one whole page. The error is a *ChecksumError if
// bytes changed, a *FormatError if this build cannot read the page.
func OpenPage(b []byte) (Page, error) {
	if len(b) < 1+checksumSize {
		return Page{}, &FormatError{Reason: fmt.Sprintf("page of %d bytes, at least %d expected", len(b), 1+checksumSize)}
	}
	n := len(b) - checksumSize
	expected, got := binary.LittleEndian.Uint32(b[n:]), crc32.Checksum(b[:n], castagnoli)
	if expected != got {
		return Page{}, &ChecksumError{Expected: expected, Got: got}
	}
	if b[0] != pageVersion {
		return Page{}, &FormatError{Reason: fmt.Sprintf("page format version %d, this build reads version %d", b[0], pageVersion)}
	}
	return Page{b: b[:n:n], id: pageIDs.Add(1)}, nil
}

// Iter returns an iterator before the first entry.
func (p Page) Iter() Iter {
	return Iter{r: reader{b: p.b, pos: 1}, id: p.id}
}

// Iter steps through the entries of a page without decoding their columns.
type Iter struct {
	r       reader
	id      uint64
	entries int
	series  model.SeriesNumber
	kind    model.Kind
	base    int64
	ttl     uint32

	kept    [timesKept]timesRef // ring, as in PageBuilder
	carried int

	wanted model.SeriesNumber // see Want
}

// Want makes Next skip the statistics of entries of series below the given one. That
// saves time when a page is scanned for one series.
func (it *Iter) Want(series model.SeriesNumber) { it.wanted = series }

// timesRef is where the times of an entry are.
type timesRef struct {
	at          int // offset of the body that holds the column
	mode        byte
	count       int
	first, last int64
}

// timesKey identifies a column of times among all pages opened.
type timesKey struct {
	page uint64
	at   int
}

// Entry is a chunk of a page, its columns not decoded.
type Entry struct {
	Series          model.SeriesNumber
	Kind            model.Kind
	Count           int
	FirstMS, LastMS int64
	HasTTL          bool  // a sample has a time-to-live
	MaxExpiryMS     int64 // when the last sample has expired; math.MaxInt64: never
	HasStats        bool
	Stats           model.Stats
	SizeBytes       int // of the entry in the page

	page  []byte
	id    uint64
	flags byte
	ttl   uint32
	times timesRef
	body  int // offset of the columns in page
	end   int
}

// Err returns the error that ended the iteration, a *FormatError; nil at the end of the
// page.
func (it *Iter) Err() error { return it.r.err }

// Next sets e to the next entry. It returns false at the end and after an error.
func (it *Iter) Next(e *Entry) bool {
	r := &it.r
	if r.err != nil || r.pos == len(r.b) {
		return false
	}
	start := r.pos
	step, flags := r.uvarint(), r.u8()
	if r.err == nil && (flags&flagUnknown != 0 || step > math.MaxUint32-uint64(it.series)) {
		r.fail("unknown entry: flags %#x, series %d + %d", flags, it.series, step)
	}
	if flags&flagKind != 0 {
		it.kind = model.Kind(r.u8())
	}
	if r.err == nil && !it.kind.Valid() {
		r.fail("unknown kind %d", it.kind)
	}
	it.series += model.SeriesNumber(step)
	*e = Entry{
		Series: it.series, Kind: it.kind, MaxExpiryMS: math.MaxInt64,
		page: r.b, id: it.id, flags: flags,
	}
	it.readTimes(e)
	it.readTTL(e)
	if r.err == nil && flags&flagStats != 0 {
		if it.series < it.wanted {
			skipStats(r)
		} else {
			it.readStats(e)
		}
	}
	size := r.uvarint()
	if r.err == nil && size > uint64(len(r.b)-r.pos) {
		r.fail("entry of %d bytes, %d left", size, len(r.b)-r.pos)
	}
	if r.err != nil {
		return false
	}
	e.body = r.pos
	r.pos += int(size)
	e.end, e.SizeBytes = r.pos, r.pos-start
	if mode := flags & flagTimes; mode == timesRegular || mode == timesCoded {
		e.times.at = e.body
		it.kept[it.carried%timesKept] = e.times
		it.carried++
	}
	if it.entries == 0 {
		it.base = e.FirstMS
	}
	it.entries++
	return true
}

// readTimes sets e.times, except where a carried column begins.
func (it *Iter) readTimes(e *Entry) {
	r, back := &it.r, 0
	switch mode := e.flags & flagTimes; mode {
	case timesRegular, timesCoded:
		h := header{flags: e.flags}
		h.span(r, r.uvarint(), it.base)
		e.times = timesRef{mode: mode, count: h.count, first: h.first, last: h.last}
	case timesEarlier:
		back = int(r.u8())
		fallthrough
	default:
		if r.err != nil {
			return
		}
		if back >= min(it.carried, timesKept) {
			r.fail("shares times %d columns back, %d there", back+1, min(it.carried, timesKept))
			return
		}
		e.times = it.kept[(it.carried-1-back)%timesKept]
	}
	e.Count, e.FirstMS, e.LastMS = e.times.count, e.times.first, e.times.last
}

func (it *Iter) readTTL(e *Entry) {
	r := &it.r
	mode := e.flags & flagTTL
	e.HasTTL = mode != ttlNone
	switch mode {
	case ttlConst:
		h := header{}
		h.readTTL(r)
		it.ttl = h.ttl
		fallthrough
	case ttlSame:
		if r.err == nil && it.ttl == 0 {
			r.fail("time-to-live as before, but none was stated")
		}
		e.ttl = it.ttl
		e.MaxExpiryMS = model.ExpiryMS(e.LastMS, it.ttl)
	case ttlColumn:
		if after := r.uvarint(); after > 0 {
			e.MaxExpiryMS = int64(uint64(e.LastMS) + after)
			if e.MaxExpiryMS <= e.LastMS && r.err == nil {
				r.fail("expires %d ms after %d ms", after, e.LastMS)
			}
		}
	}
}

func (it *Iter) readStats(e *Entry) {
	if !e.Kind.Fixed() {
		it.r.fail("statistics of %s values", e.Kind)
		return
	}
	e.Stats = readStats(&it.r, e.Kind, e.Count)
	e.Stats.Count, e.Stats.FirstMS, e.Stats.LastMS = e.Count, e.FirstMS, e.LastMS
	e.HasStats = true
}

// DecodeEntry appends the samples of e to dst. After an error, a *FormatError,
// dst is as before.
func (d *Decoder) DecodeEntry(e *Entry, dst *model.Columns) error {
	before := *dst
	r := reader{b: e.page[:e.end], pos: e.body}
	d.entryTimes(&r, e, dst)
	if r.err == nil {
		h := header{kind: e.Kind, flags: e.flags, count: e.Count, ttl: e.ttl}
		d.columns(&r, &h, dst, len(before.Times))
	}
	if r.err == nil && r.pos != e.end {
		r.fail("%d bytes after the entry's columns", e.end-r.pos)
	}
	if r.err != nil {
		*dst = before
	}
	return r.err
}

// entryTimes appends the times of e to dst and advances r past them if they are in e's
// own body. A column that several entries share is decoded once.
func (d *Decoder) entryTimes(r *reader, e *Entry, dst *model.Columns) {
	t := &e.times
	if t.mode == timesRegular {
		dst.Times = regularTimes(dst.Times, t.count, t.first, t.last)
		return
	}
	dst.Times = append(dst.Times, d.sharedTimes(r, e)...)
}

// sharedTimes returns the times of e, which are a column, and advances r past the
// column if it is in e's own body. The times are valid until the next call.
func (d *Decoder) sharedTimes(r *reader, e *Entry) []int64 {
	t := &e.times
	if key := (timesKey{e.id, t.at}); d.timesOf != key {
		column := reader{b: e.page, pos: t.at}
		d.timesOf = timesKey{}
		d.times = d.codedTimes(&column, d.times[:0], t.count, t.first, t.last)
		if column.err != nil {
			r.err = column.err
			return nil
		}
		d.timesOf, d.timesEnd = key, column.pos
	}
	if e.flags&flagTimes != timesCoded {
		return d.times
	}
	if d.timesEnd > e.end {
		r.fail("times end %d bytes after the entry", d.timesEnd-e.end)
		return nil
	}
	r.pos = d.timesEnd
	return d.times
}
