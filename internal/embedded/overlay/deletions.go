package overlay

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/record"
)

// Deletions are the deletions that some layer has not applied. The set does not change. A nil
// pointer has none.
//
// There can be tens of thousands, if a client deletes many series one by one, and each series that is
// read asks which of them concern it. So eight deletions form a group, eight groups a larger one, and
// so on. A group knows the series that it concerns. Only complete groups exist: they never change,
// and are common to all later Deletions.
type Deletions struct {
	list []*record.Deletion // by sequence

	grouping sync.Once
	groups   atomic.Pointer[groups] // at first the groups of earlier Deletions, nil if they have none
}

// groups are sets of series: groups[k][i] is that of list[i*sizeOf(k):(i+1)*sizeOf(k)].
type groups [][]*roaring.Bitmap

// groupShift is the binary logarithm of how many members a group has.
const groupShift = 3

// sizeOf is the number of deletions in a group of level k.
func sizeOf(k int) int { return 1 << (groupShift * (k + 1)) }

// NewDeletions returns the deletions of a list, which are ordered by sequence. The list must not
// change.
func NewDeletions(list []*record.Deletion) *Deletions { return &Deletions{list: list} }

// List returns the deletions by sequence.
func (d *Deletions) List() []*record.Deletion {
	if d == nil {
		return nil
	}
	return d.list
}

// With returns the deletions and a later one.
func (d *Deletions) With(later *record.Deletion) *Deletions {
	next := NewDeletions(append(slices.Clone(d.List()), later))
	if d != nil {
		next.groups.Store(d.groups.Load())
	}
	return next
}

// grouped returns all complete groups.
func (d *Deletions) grouped() groups {
	d.grouping.Do(func() {
		var all groups
		if earlier := d.groups.Load(); earlier != nil {
			all = slices.Clone(*earlier)
		}
		for k := 0; len(d.list) >= sizeOf(k); k++ {
			if k == len(all) {
				all = append(all, nil)
			}
			level := slices.Clip(all[k]) // others append to it, too
			for i := len(level); i < len(d.list)/sizeOf(k); i++ {
				level = append(level, d.union(all, k, i))
			}
			all[k] = level
		}
		d.groups.Store(&all)
	})
	return *d.groups.Load()
}

// union returns the series of a group from those of its members.
func (d *Deletions) union(all groups, k, i int) *roaring.Bitmap {
	from, to := i<<groupShift, (i+1)<<groupShift
	if k > 0 {
		return roaring.FastOr(all[k-1][from:to]...)
	}
	var members []*roaring.Bitmap
	for _, m := range d.list[from:to] {
		members = append(members, m.IDs)
	}
	return roaring.FastOr(members...)
}

// Of yields the deletions that concern a series, by sequence.
func (d *Deletions) Of(id model.SeriesNumber) iter.Seq[*record.Deletion] {
	return func(yield func(*record.Deletion) bool) {
		if len(d.List()) == 0 {
			return
		}
		all := d.grouped()
		for i := 0; i < len(d.list); {
			if n := d.without(all, i, id); n > 0 {
				i += n
				continue
			}
			if m := d.list[i]; m.IDs.Contains(uint32(id)) && !yield(m) {
				return
			}
			i++
		}
	}
}

// without returns the size of the largest group that begins at i and does not concern a series, 0
// if there is none.
func (d *Deletions) without(all groups, i int, id model.SeriesNumber) int {
	for k := len(all) - 1; k >= 0; k-- {
		if size := sizeOf(k); i%size == 0 && i/size < len(all[k]) && !all[k][i/size].Contains(uint32(id)) {
			return size
		}
	}
	return 0
}

// Hidden returns the spans of time that deletions after the given sequence hide of a series, if they
// overlap with r: ascending, and with gaps between them. It writes to dst.
func (d *Deletions) Hidden(dst Spans, id model.SeriesNumber, applied uint64, r model.TimeRange) Spans {
	dst = dst[:0]
	for m := range d.Of(id) {
		if m.Sequence > applied && m.Range.Overlaps(r) {
			dst = append(dst, m.Range)
		}
	}
	if len(dst) < 2 {
		return dst
	}
	slices.SortFunc(dst, func(a, b model.TimeRange) int { return cmp.Compare(a.StartMS, b.StartMS) })
	last := 0
	for _, next := range dst[1:] {
		if p := &dst[last]; next.StartMS <= p.EndMS {
			p.EndMS = max(p.EndMS, next.EndMS)
		} else {
			last++
			dst[last] = next
		}
	}
	return dst[:last+1]
}

// Spans are ranges of time: ascending, and with gaps between them.
type Spans []model.TimeRange

// from returns the first span that does not end before ms. ok is false if there is none.
func (s Spans) from(ms int64) (r model.TimeRange, ok bool) {
	i, _ := slices.BinarySearchFunc(s, ms, func(r model.TimeRange, ms int64) int { return cmp.Compare(r.EndMS, ms) })
	if i == len(s) {
		return r, false
	}
	return s[i], true
}

func (s Spans) contain(ms int64) bool {
	r, ok := s.from(ms)
	return ok && r.StartMS <= ms
}

// cover reports whether all of r is in one span.
func (s Spans) cover(r model.TimeRange) bool {
	span, ok := s.from(r.StartMS)
	return ok && span.StartMS <= r.StartMS && r.EndMS <= span.EndMS
}

// overlap reports whether some of r is in a span.
func (s Spans) overlap(r model.TimeRange) bool {
	span, ok := s.from(r.StartMS)
	return ok && span.Overlaps(r)
}
