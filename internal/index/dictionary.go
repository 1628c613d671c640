package index

import (
	"iter"
	"strings"

	"varve/internal/model"
)

// leafSize is the most ids in one leaf of a dictionary's order: 2 KiB, so that
// an insert moves little, and a million names have a top level of some 3,000.
const leafSize = 512

// stringBytes is what a name costs beside its text: a string header in texts,
// a slot and its share of free slots in ids, an entry in order.
const stringBytes = 16 + 40 + 6

// A dictionary gives distinct names small dense numbers and keeps them in the
// order of model.CompareNames. Numbers of removed names are given again.
//
// The order is kept on each insert, rather than sorted when it is asked for:
// it costs a new name about a microsecond, and no reader ever waits for a
// million names to be sorted.
type dictionary struct {
	ids   map[string]uint32
	texts []string // by id; "" for a free id
	free  []uint32
	order [][]uint32 // leaves of ids, none empty; ascending within and across
	bytes int        // length of all texts
}

// find returns the id of name.
func (d *dictionary) find(name string) (uint32, bool) {
	id, ok := d.ids[name]
	return id, ok
}

// is reports whether id is the number of name; id may be out of date.
func (d *dictionary) is(id uint32, name string) bool {
	return int(id) < len(d.texts) && d.texts[id] == name && name != ""
}

// len returns the number of names.
func (d *dictionary) len() int { return len(d.ids) }

// size returns the approximate memory in bytes.
func (d *dictionary) size() int { return d.len()*stringBytes + d.bytes }

// add gives name, which must be new, a number. The dictionary keeps a copy of
// name, so that it does not pin the request that name was cut from.
func (d *dictionary) add(name string) uint32 {
	if d.ids == nil {
		d.ids = make(map[string]uint32)
	}
	name = strings.Clone(name)
	id := uint32(len(d.texts))
	if n := len(d.free); n > 0 {
		id, d.free = d.free[n-1], d.free[:n-1]
		d.texts[id] = name
	} else {
		d.texts = append(d.texts, name)
	}
	d.ids[name] = id
	d.bytes += len(name)
	d.insert(id)
	return id
}

// remove forgets the name of id.
func (d *dictionary) remove(id uint32) {
	name := d.texts[id]
	leaf, i := d.seek(name)
	l := d.order[leaf]
	d.order[leaf] = append(l[:i], l[i+1:]...)
	if len(d.order[leaf]) == 0 {
		d.order = append(d.order[:leaf], d.order[leaf+1:]...)
	}
	delete(d.ids, name)
	d.bytes -= len(name)
	d.texts[id] = ""
	d.free = append(d.free, id)
}

// insert puts id into the order.
func (d *dictionary) insert(id uint32) {
	leaf, i := d.seek(d.texts[id])
	if leaf == len(d.order) {
		// After every name there is. Names often come sorted (host-1, host-2),
		// so leaves that are filled from the left stay full.
		if leaf == 0 || len(d.order[leaf-1]) == leafSize {
			d.order = append(d.order, []uint32{id})
		} else {
			d.order[leaf-1] = append(d.order[leaf-1], id)
		}
		return
	}
	if len(d.order[leaf]) == leafSize {
		d.split(leaf)
		if i > leafSize/2 {
			leaf, i = leaf+1, i-leafSize/2
		}
	}
	l := append(d.order[leaf], 0)
	copy(l[i+1:], l[i:])
	l[i] = id
	d.order[leaf] = l
}

// split halves a full leaf.
func (d *dictionary) split(leaf int) {
	full := d.order[leaf]
	upper := append(make([]uint32, 0, leafSize), full[leafSize/2:]...)
	d.order[leaf] = full[:leafSize/2]
	d.order = append(d.order, nil)
	copy(d.order[leaf+2:], d.order[leaf+1:])
	d.order[leaf+1] = upper
}

// seek returns the position of the first name that is not below name:
// (len(d.order), 0) if there is none.
func (d *dictionary) seek(name string) (leaf, i int) {
	lo, hi := 0, len(d.order) // the first leaf whose last name is not below
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		l := d.order[mid]
		if model.CompareNames(d.texts[l[len(l)-1]], name) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if leaf = lo; leaf == len(d.order) {
		return leaf, 0
	}
	l := d.order[leaf]
	lo, hi = 0, len(l)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if model.CompareNames(d.texts[l[mid]], name) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return leaf, lo
}

// ascend yields ids in the order of their names: of those that begin with
// prefix, from the first one that is not below from. Names with a common
// prefix are neighbours in this order, and the prefix is the lowest of them.
func (d *dictionary) ascend(prefix, from string) iter.Seq[uint32] {
	if model.CompareNames(from, prefix) < 0 {
		from = prefix
	}
	return func(yield func(uint32) bool) {
		leaf, i := d.seek(from)
		for ; leaf < len(d.order); leaf, i = leaf+1, 0 {
			for _, id := range d.order[leaf][i:] {
				if !strings.HasPrefix(d.texts[id], prefix) || !yield(id) {
					return
				}
			}
		}
	}
}
