package model

import (
	"cmp"
	"slices"
)

// A Sorter sorts samples in arrival order by time. Of samples with the same time it
// keeps the last one. Reuse it to reuse its memory.
type Sorter struct {
	order  []arrival
	sorted Columns
}

type arrival struct {
	ms int64
	at int32
}

// Sort sorts c in place.
func (s *Sorter) Sort(kind Kind, c *Columns) {
	if increasing(c.Times) {
		return
	}
	s.order = s.order[:0]
	for i, ms := range c.Times {
		s.order = append(s.order, arrival{ms, int32(i)})
	}
	slices.SortFunc(s.order, func(a, b arrival) int {
		return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.at, b.at))
	})
	s.sorted.Reset()
	s.sorted.Data = slices.Grow(s.sorted.Data, len(c.Data)) // growing it bit by bit takes twice the memory
	for i, a := range s.order {
		if i+1 < len(s.order) && s.order[i+1].ms == a.ms {
			continue
		}
		s.sorted.AppendFrom(kind, c, int(a.at))
	}
	*c, s.sorted = s.sorted, *c
}

func increasing(times []int64) bool {
	for i := 1; i < len(times); i++ {
		if times[i] <= times[i-1] {
			return false
		}
	}
	return true
}
