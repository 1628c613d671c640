package index

import (
	"iter"
	"slices"
)

// tagsMin is the number of tags from which a tagTable is a map. Most metrics
// have fewer, and finding one of a few needs no hash.
const tagsMin = 17

// A tagTable holds the tags of one metric. The zero value is empty. A pointer into it
// is valid until the next tag is added or removed.
type tagTable struct {
	few  []metricTag           // in order of addition; unused if many is used
	many map[uint32]*metricTag // by number of the tag
}

// noTags is the shared table of metrics without tags, of which there may be very many.
// It stays empty.
var noTags tagTable

// A subset is the set of names of a dictionary that are in use in one place, by their
// numbers.
type subset interface {
	len() int
	has(number uint32) bool
	numbers() iter.Seq[uint32] // in no order
}

// len returns the number of tags.
func (t *tagTable) len() int { return len(t.few) + len(t.many) }

// called returns the tag with this name of a table that is not a map, or nil. Series
// name the same tags in the same order, so it is mostly at place.
func (t *tagTable) called(name string, place int) *metricTag {
	if place < len(t.few) && t.few[place].tag.name == name {
		return &t.few[place]
	}
	for i := range t.few {
		if t.few[i].tag.name == name {
			return &t.few[i]
		}
	}
	return nil
}

// get returns the tag with this number, or nil.
func (t *tagTable) get(number uint32) *metricTag {
	if t.many != nil {
		return t.many[number]
	}
	for i := range t.few {
		if t.few[i].tag.number == number {
			return &t.few[i]
		}
	}
	return nil
}

func (t *tagTable) has(number uint32) bool { return t.get(number) != nil }

// add adds a tag, which must be new.
func (t *tagTable) add(of *tag) *metricTag {
	if t.many == nil && len(t.few)+1 < tagsMin {
		grown := make([]metricTag, len(t.few)+1) // no free slots: there are many tables
		copy(grown, t.few)
		t.few = grown
		mt := &t.few[len(t.few)-1]
		mt.tag = of
		return mt
	}
	if t.many == nil {
		t.many = make(map[uint32]*metricTag, tagsMin)
		for _, mt := range t.few {
			t.many[mt.tag.number] = &mt
		}
		t.few = nil
	}
	mt := &metricTag{tag: of}
	t.many[of.number] = mt
	return mt
}

// remove removes a tag. A map that has become small is replaced, because a map never
// shrinks.
func (t *tagTable) remove(of *tag) {
	if t.many == nil {
		for i := range t.few {
			if t.few[i].tag == of {
				t.few = slices.Delete(t.few, i, i+1)
				return
			}
		}
		return
	}
	delete(t.many, of.number)
	if len(t.many) > tagsMin/2 {
		return
	}
	for _, mt := range t.many {
		t.few = append(t.few, *mt)
	}
	t.many = nil
}

// all yields the tags, in no order.
func (t *tagTable) all() iter.Seq[*metricTag] {
	return func(yield func(*metricTag) bool) {
		for i := range t.few {
			if !yield(&t.few[i]) {
				return
			}
		}
		for _, mt := range t.many {
			if !yield(mt) {
				return
			}
		}
	}
}

func (t *tagTable) numbers() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for mt := range t.all() {
			if !yield(mt.tag.number) {
				return
			}
		}
	}
}
