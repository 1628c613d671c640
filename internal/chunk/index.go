package chunk

import (
	"slices"
	"unsafe"

	"varve/internal/model"
)

// marksApart is how many entries there are at least from one mark of an Index to
// the next.
const marksApart = 4

// An Index tells where in a page the entries of a series begin, so that a page of
// many series need not be walked through from its start to find one. It serves
// any number of goroutines.
type Index struct {
	marks   []mark
	columns []timesRef // of times, all that the page's entries carry
	base    int64      // first time of the page
}

// mark is what an Iter knows before the first entry of a series, apart from the
// columns of times.
type mark struct {
	series  uint32 // of that entry
	before  uint32 // series of the entry before
	pos     uint32 // of the entry
	entries uint32 // before it
	carried uint32
	ttl     uint32
	kind    uint8
}

// Index walks through the page, as far as it can be read: an Iter that comes to
// the end of that has the error.
func (p Page) Index() *Index {
	x := &Index{}
	it := p.Iter()
	it.Want(^uint32(0)) // no statistics
	var e Entry
	since := 0
	for {
		before := mark{
			before: it.series, pos: uint32(it.r.pos), entries: uint32(it.entries),
			carried: uint32(it.carried), ttl: it.ttl, kind: uint8(it.kind),
		}
		if !it.Next(&e) {
			break
		}
		if it.carried > int(before.carried) {
			x.columns = append(x.columns, e.times)
		}
		since++
		if before.entries > 0 && e.Series != before.before && since > marksApart {
			before.series, since = e.Series, 0
			x.marks = append(x.marks, before)
		}
	}
	x.base = it.base
	x.marks, x.columns = slices.Clip(x.marks), slices.Clip(x.columns)
	return x
}

// Bytes is the memory that x takes.
func (x *Index) Bytes() int64 {
	return int64(unsafe.Sizeof(*x)) + int64(cap(x.marks))*int64(unsafe.Sizeof(mark{})) + int64(cap(x.columns))*int64(unsafe.Sizeof(timesRef{}))
}

// Seek moves to the last mark of x before which there are only entries of series
// below the given one, if that is ahead. It reports whether it moved. x must be
// of the iterator's page.
func (it *Iter) Seek(x *Index, series uint32) bool {
	i, _ := slices.BinarySearchFunc(x.marks, series, func(m mark, series uint32) int {
		if m.series <= series {
			return -1
		}
		return 1
	})
	if i == 0 || int(x.marks[i-1].pos) <= it.r.pos || it.r.err != nil {
		return false
	}
	m := &x.marks[i-1]
	it.base = x.base
	it.r.pos, it.entries, it.carried = int(m.pos), int(m.entries), int(m.carried)
	it.series, it.ttl, it.kind = m.before, m.ttl, model.Kind(m.kind)
	for at := max(0, it.carried-timesKept); at < it.carried; at++ {
		it.kept[at%timesKept] = x.columns[at]
	}
	return true
}
