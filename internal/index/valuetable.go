package index

import "iter"

// tableMin is the number of values from which a valueTable is a map. Most
// metrics have one or two values of most tags, and a map costs 120 bytes.
const tableMin = 9

// valueBytes is the memory of an entry of a valueTable, free slots included.
const valueBytes = 14

// A valueTable maps the value numbers of one tag to lists of ids. The zero
// value is empty.
type valueTable struct {
	few  []valueEntry // in any order; unused if many is used
	many map[uint32]handle
}

type valueEntry struct {
	value uint32
	ids   handle
}

// len returns the number of values.
func (t *valueTable) len() int {
	if t.many != nil {
		return len(t.many)
	}
	return len(t.few)
}

// get returns the list of a value.
func (t *valueTable) get(value uint32) (handle, bool) {
	if t.many != nil {
		h, ok := t.many[value]
		return h, ok
	}
	for _, e := range t.few {
		if e.value == value {
			return e.ids, true
		}
	}
	return 0, false
}

func (t *valueTable) has(value uint32) bool {
	_, ok := t.get(value)
	return ok
}

func (t *valueTable) numbers() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for value := range t.all() {
			if !yield(value) {
				return
			}
		}
	}
}

// set sets the list of a value.
func (t *valueTable) set(value uint32, ids handle) {
	if t.many != nil {
		t.many[value] = ids
		return
	}
	for i := range t.few {
		if t.few[i].value == value {
			t.few[i].ids = ids
			return
		}
	}
	if len(t.few)+1 < tableMin {
		t.few = append(t.few, valueEntry{value, ids})
		return
	}
	t.many = make(map[uint32]handle, tableMin)
	for _, e := range t.few {
		t.many[e.value] = e.ids
	}
	t.many[value] = ids
	t.few = nil
}

// remove removes a value. A map that has become small is replaced, because a map never
// shrinks.
func (t *valueTable) remove(value uint32) {
	if t.many == nil {
		for i, e := range t.few {
			if e.value == value {
				t.few[i] = t.few[len(t.few)-1]
				t.few = t.few[:len(t.few)-1]
				return
			}
		}
		return
	}
	delete(t.many, value)
	if len(t.many) > tableMin/2 {
		return
	}
	for v, h := range t.many {
		t.few = append(t.few, valueEntry{v, h})
	}
	t.many = nil
}

// all yields values and their lists, in no order.
func (t *valueTable) all() iter.Seq2[uint32, handle] {
	return func(yield func(uint32, handle) bool) {
		for _, e := range t.few {
			if !yield(e.value, e.ids) {
				return
			}
		}
		for v, h := range t.many {
			if !yield(v, h) {
				return
			}
		}
	}
}
