package index

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

const (
	// bitmapMin is the number of ids from which a list is a roaring bitmap:
	// below it a sorted array is smaller (a bitmap has some 200 bytes of
	// structure, and ids of one tag value are often far apart).
	bitmapMin = 1024

	// bitmapStay is the number of ids below which a bitmap becomes an array again. It
	// is less than bitmapMin, so that a list that grows and shrinks by one is not
	// converted each time.
	bitmapStay = 512

	// slabSize is the number of lists in one slab.
	slabSize = 1024
)

// A handle names a list of ids. Most tag values of most metrics have one
// series, so the list of one id below 2^31 is the handle itself; otherwise
// bit 31 is set and the rest is the number of a list in postings.
type handle uint32

const listed handle = 1 << 31

// A list holds ascending ids: in ids, or in set if it is not nil.
type list struct {
	ids []uint32
	set *roaring.Bitmap
}

// len returns the number of ids.
func (l *list) len() int {
	if l.set != nil {
		return int(l.set.GetCardinality())
	}
	return len(l.ids)
}

// postings holds all lists of an index, in slabs: a list never moves, and
// growing never copies more than pointers.
type postings struct {
	slabs [][]list
	free  []handle
	ids   int // entries in lists, without those that are handles
}

// at returns the list of a listed handle.
func (p *postings) at(h handle) *list {
	n := h &^ listed
	return &p.slabs[n/slabSize][n%slabSize]
}

// make returns an empty list.
func (p *postings) make() (handle, *list) {
	if n := len(p.free); n > 0 {
		h := p.free[n-1]
		p.free = p.free[:n-1]
		return h, p.at(h)
	}
	if n := len(p.slabs); n == 0 || len(p.slabs[n-1]) == slabSize {
		p.slabs = append(p.slabs, make([]list, 0, slabSize))
	}
	last := &p.slabs[len(p.slabs)-1]
	*last = append(*last, list{})
	h := listed | handle((len(p.slabs)-1)*slabSize+len(*last)-1)
	return h, p.at(h)
}

// count returns the number of lists.
func (p *postings) count() int {
	n := len(p.slabs)
	if n == 0 {
		return 0
	}
	return (n-1)*slabSize + len(p.slabs[n-1]) - len(p.free)
}

// one returns a list of one id.
func (p *postings) one(id uint32) handle {
	if handle(id)&listed == 0 {
		return handle(id)
	}
	h, l := p.make()
	l.ids = []uint32{id}
	p.ids++
	return h
}

// add adds id to the list of h and returns the new handle of the list.
func (p *postings) add(h handle, id uint32) handle {
	var l *list
	if h&listed == 0 {
		if uint32(h) == id {
			return h
		}
		first := uint32(h)
		h, l = p.make()
		l.ids = append(make([]uint32, 0, 2), first)
		p.ids++
	} else {
		l = p.at(h)
	}
	if l.set != nil {
		if l.set.CheckedAdd(id) {
			p.ids++
		}
		return h
	}
	i := len(l.ids)
	if i > 0 && l.ids[i-1] >= id {
		var found bool
		if i, found = slices.BinarySearch(l.ids, id); found {
			return h
		}
	}
	p.ids++
	l.ids = slices.Insert(l.ids, i, id)
	if len(l.ids) >= bitmapMin {
		l.set, l.ids = roaring.BitmapOf(l.ids...), nil
	}
	return h
}

// remove removes id from the list of h. It returns the new handle of the list; empty
// means that the list is gone.
func (p *postings) remove(h handle, id uint32) (now handle, empty bool) {
	if h&listed == 0 {
		return h, uint32(h) == id
	}
	l := p.at(h)
	if l.set != nil {
		if l.set.CheckedRemove(id) {
			p.ids--
		}
		if l.set.GetCardinality() < bitmapStay {
			l.ids, l.set = l.set.ToArray(), nil
		}
		return h, false
	}
	if i, found := slices.BinarySearch(l.ids, id); found {
		l.ids = slices.Delete(l.ids, i, i+1)
		p.ids--
	}
	switch {
	case len(l.ids) == 0:
		p.release(h)
		return 0, true
	case len(l.ids) == 1 && handle(l.ids[0])&listed == 0:
		now = handle(l.ids[0])
		p.ids--
		p.release(h)
		return now, false
	}
	return h, false
}

// release frees the list of h.
func (p *postings) release(h handle) {
	*p.at(h) = list{}
	p.free = append(p.free, h)
}

// contains reports whether id is in the list of h.
func (p *postings) contains(h handle, id uint32) bool {
	if h&listed == 0 {
		return uint32(h) == id
	}
	l := p.at(h)
	if l.set != nil {
		return l.set.Contains(id)
	}
	_, found := slices.BinarySearch(l.ids, id)
	return found
}

// len returns the number of ids in the list of h.
func (p *postings) len(h handle) int {
	if h&listed == 0 {
		return 1
	}
	return p.at(h).len()
}

// union returns the ids of all lists of hs. If shared is true the result is a bitmap of
// the index itself, which the caller may read but not keep.
func (p *postings) union(hs []handle) (ids *roaring.Bitmap, shared bool) {
	if len(hs) == 1 && hs[0]&listed != 0 {
		if set := p.at(hs[0]).set; set != nil {
			return set, true
		}
	}
	var sets []*roaring.Bitmap
	count, last := 0, uint32(0) // of the ids outside bitmaps
	for _, h := range hs {
		if h&listed == 0 {
			count, last = count+1, max(last, uint32(h))
		} else if l := p.at(h); l.set != nil {
			sets = append(sets, l.set)
		} else {
			count, last = count+len(l.ids), max(last, l.ids[len(l.ids)-1])
		}
	}
	if words := int(last/64) + 1; count >= denseMin && words <= 16*count {
		ids = p.dense(hs, words)
	} else {
		ids = p.sorted(hs, count)
	}
	if len(sets) > 0 {
		ids = roaring.FastOr(append(sets, ids)...)
	}
	return ids, false
}

// filter returns those of ids that are in any list of hs, or, without any, those that
// are in none.
func (p *postings) filter(ids *roaring.Bitmap, hs []handle, any bool) *roaring.Bitmap {
	var left []uint32
	for it := ids.Iterator(); it.HasNext(); {
		id := it.Next()
		if slices.ContainsFunc(hs, func(h handle) bool { return p.contains(h, id) }) == any {
			left = append(left, id)
		}
	}
	return roaring.BitmapOf(left...)
}

// denseMin is the number of ids from which union sets bits of a plain bit set
// instead of sorting: several times faster, as long as the set is not mostly
// empty words.
const denseMin = 256

// dense returns the ids of those lists of hs that are not bitmaps; words is the length
// of a bit set for them.
func (p *postings) dense(hs []handle, words int) *roaring.Bitmap {
	bits := make([]uint64, words)
	for _, h := range hs {
		if h&listed == 0 {
			bits[h/64] |= 1 << (h % 64)
			continue
		}
		for _, id := range p.at(h).ids {
			bits[id/64] |= 1 << (id % 64)
		}
	}
	return roaring.FromDense(bits, true)
}

// sorted returns the same as dense; count is the number of ids.
func (p *postings) sorted(hs []handle, count int) *roaring.Bitmap {
	ids := make([]uint32, 0, count)
	for _, h := range hs {
		if h&listed == 0 {
			ids = append(ids, uint32(h))
		} else {
			ids = append(ids, p.at(h).ids...)
		}
	}
	slices.Sort(ids)
	return roaring.BitmapOf(ids...)
}
