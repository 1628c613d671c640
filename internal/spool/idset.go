package spool

import "varve/internal/model"

// An idSet is a set of series ids: a bit for each id, in pages that are allocated only where
// there are ids. It does not lock.
type idSet struct {
	pages []*idPage
}

const idPageBits = 12

type idPage [1 << idPageBits / 64]uint64

func (s *idSet) has(id model.SeriesNumber) bool {
	at := int(id >> idPageBits)
	if at >= len(s.pages) || s.pages[at] == nil {
		return false
	}
	return s.pages[at][id>>6&(1<<idPageBits/64-1)]&(1<<(id&63)) != 0
}

// add adds id, and reports whether it was absent.
func (s *idSet) add(id model.SeriesNumber) bool {
	at := int(id >> idPageBits)
	for at >= len(s.pages) {
		s.pages = append(s.pages, nil)
	}
	if s.pages[at] == nil {
		s.pages[at] = new(idPage)
	}
	word, bit := &s.pages[at][id>>6&(1<<idPageBits/64-1)], uint64(1)<<(id&63)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// remove removes id, and reports whether it was present.
func (s *idSet) remove(id model.SeriesNumber) bool {
	if !s.has(id) {
		return false
	}
	s.pages[id>>idPageBits][id>>6&(1<<idPageBits/64-1)] &^= 1 << (id & 63)
	return true
}
