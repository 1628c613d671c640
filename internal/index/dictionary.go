package index

import (
	"iter"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"varve/internal/model"
)

// stringBytes is the memory of a name besides its text: a string header in texts, a
// slot and its share of free slots in ids, an entry in order.
const stringBytes = 16 + 16 + 18

// A dictionary gives distinct names small dense numbers and keeps them in the order of
// model.CompareNames. It reuses the numbers of removed names.
//
// Each insert keeps the order, rather than the first query sorting the names: a new
// name costs less than a microsecond more, and no reader ever waits for a million names
// to be sorted.
type dictionary struct {
	ids   Table
	texts []string // by id; "" for a free id
	free  []uint32
	order []*leaf // none empty; ascending within and across

	// changes lists the numbers that were removed or reused, for readers that remember
	// results by number (see scan). It begins at change number forgotten and is kept
	// only after the first such reader.
	watched   atomic.Bool // set with the index locked for reading
	forgotten uint64
	changes   []uint32
}

// changesMax bounds the changes that are kept.
const changesMax = 4096

// note records that id has another text now, or none.
func (d *dictionary) note(id uint32) {
	if !d.watched.Load() {
		d.forgotten++
		return
	}
	if len(d.changes) == changesMax {
		d.forgotten += changesMax
		d.changes = d.changes[:0]
	}
	d.changes = append(d.changes, id)
}

// changed returns the number of the next change.
func (d *dictionary) changed() uint64 { return d.forgotten + uint64(len(d.changes)) }

// since returns the changes from number at on, unless they are forgotten.
func (d *dictionary) since(at uint64) ([]uint32, bool) {
	if at < d.forgotten {
		return nil, false
	}
	return d.changes[at-d.forgotten:], true
}

// find returns the id of name.
func (d *dictionary) find(name string) (uint32, bool) {
	if d.ids.Len() == 0 {
		return 0, false
	}
	return d.ids.Find(d.ids.HashString(name), func(id uint32) bool { return d.texts[id] == name })
}

// is reports whether id is the number of name; id may be outdated.
func (d *dictionary) is(id uint32, name string) bool {
	return int(id) < len(d.texts) && d.texts[id] == name && name != ""
}

func (d *dictionary) len() int { return d.ids.Len() }

// add gives a number to name, which must be new. The dictionary copies name, so that it
// does not pin the request that name was cut from.
func (d *dictionary) add(name string) uint32 {
	if d.ids.parts == nil {
		d.ids = NewTable()
	}
	name = strings.Clone(name)
	id := uint32(len(d.texts))
	if n := len(d.free); n > 0 {
		id, d.free = d.free[n-1], d.free[:n-1]
		d.texts[id] = name
		d.note(id)
	} else {
		d.texts = append(d.texts, name)
	}
	d.ids.Add(d.ids.HashString(name), id)
	d.insert(id)
	return id
}

func (d *dictionary) remove(id uint32) {
	name := d.texts[id]
	at, i := d.seek(name)
	if d.order[at].remove(i); len(d.order[at].ids) == 0 {
		d.order = slices.Delete(d.order, at, at+1)
	}
	d.ids.Remove(d.ids.HashString(name), id)
	d.texts[id] = ""
	d.note(id)
	d.free = append(d.free, id)
}

// insert puts id into the order.
func (d *dictionary) insert(id uint32) {
	at, i := d.seek(d.texts[id])
	if at == len(d.order) {
		// After all existing names. Names often come sorted (host-1, host-2), so leaves
		// that are filled from the left stay full.
		if at == 0 || len(d.order[at-1].ids) == leafSize {
			d.order = append(d.order, newLeaf(d.texts, []uint32{id}))
			return
		}
		at--
		i = len(d.order[at].ids)
	}
	if len(d.order[at].ids) == leafSize {
		upper := d.order[at].split(d.texts)
		d.order = slices.Insert(d.order, at+1, upper)
		if n := len(d.order[at].ids); i > n {
			at, i = at+1, i-n
		}
	}
	d.order[at].insert(d.texts, i, id)
}

// seek returns the position of the first name that is not below name, (len(d.order), 0)
// if there is none.
func (d *dictionary) seek(name string) (at, i int) {
	// The first leaf whose last name is not below.
	at = sort.Search(len(d.order), func(i int) bool {
		return model.CompareNames(d.texts[d.order[i].last()], name) >= 0
	})
	if at < len(d.order) {
		i = d.order[at].seek(d.texts, name)
	}
	return at, i
}

// ascend yields ids in the order of their names: names that begin with prefix, starting
// with the first one that is not below from. Names with a common prefix are neighbours
// in this order, and the prefix sorts before all of them.
func (d *dictionary) ascend(prefix, from string) iter.Seq[uint32] {
	if model.CompareNames(from, prefix) < 0 {
		from = prefix
	}
	return func(yield func(uint32) bool) {
		at, i := d.seek(from)
		for ; at < len(d.order); at, i = at+1, 0 {
			for _, id := range d.order[at].ids[i:] {
				if !strings.HasPrefix(d.texts[id], prefix) || !yield(id) {
					return
				}
			}
		}
	}
}

// count returns how many names begin with prefix, or some number above enough if there
// are more than that.
func (d *dictionary) count(prefix string, enough int) int {
	n := 0
	at, i := d.seek(prefix)
	for ; at < len(d.order) && n <= enough; at, i = at+1, 0 {
		ids := d.order[at].ids[i:]
		above := sort.Search(len(ids), func(i int) bool { return !strings.HasPrefix(d.texts[ids[i]], prefix) })
		if n += above; above < len(ids) {
			break
		}
	}
	return n
}

// countAll is count for several prefixes, none of which begins with another.
func (d *dictionary) countAll(prefixes []string, enough int) (n int) {
	for _, prefix := range prefixes {
		if n += d.count(prefix, enough-n); n > enough {
			break
		}
	}
	return n
}
