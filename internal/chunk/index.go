package chunk

import (
	"math"
	"slices"
	"unsafe"

	"varve/internal/model"
)

// marksApart is the least number of entries between two marks of an Index.
const marksApart = 4

// An Index marks where the entries of some series begin in a page, so that an Iter
// finds a series without reading the page from its start. It is immutable: any number
// of goroutines may use it.
type Index struct {
	marks   []mark
	columns []timesRef // all columns of times in the page
	base    int64      // first time of the page
}

// mark is the state of an Iter before the first entry of a series, without the
// columns of times.
type mark struct {
	series  model.SeriesNumber // of that entry
	before  model.SeriesNumber // series of the entry before it
	pos     uint32             // offset of the entry in the page
	entries uint32             // number of entries before it
	carried uint32             // number of columns of times before it
	ttl     uint32
	kind    uint8
}

// Index makes the index of the page. In a damaged page it marks only entries before the
// damage; an Iter reports the damage when it gets there.
func (p Page) Index() *Index {
	x := &Index{}
	it := p.Iter()
	it.Want(math.MaxUint32) // no statistics
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

// Seek moves ahead to the last mark of x that is not after the first entry of the
// series. It never moves back, and reports whether it moved. x must be the index
// of the iterator's page.
func (it *Iter) Seek(x *Index, series model.SeriesNumber) bool {
	i, _ := slices.BinarySearchFunc(x.marks, series, func(m mark, series model.SeriesNumber) int {
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
