package index

import (
	"cmp"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/store"
)

// Select returns the ids of the series of a metric that satisfy all matchers
// and are in within; nil stands for all ids. The result is the caller's own.
// A metric that is not known has no series. The only error is a
// *store.InputError for a matcher with a nil pattern.
func (x *Index) Select(metric string, ms []model.Matcher, within *roaring.Bitmap) (*roaring.Bitmap, error) {
	plans, err := planPatterns(ms)
	if err != nil {
		return nil, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	m, ok := x.metric(metric)
	if !ok {
		return roaring.New(), nil
	}
	found := make([]postingSet, 0, len(ms)+1)
	for i := range ms {
		set := x.match(m, ms[i], plans[i])
		if len(set.lists) == 0 {
			return roaring.New(), nil
		}
		found = append(found, set)
	}
	if len(found) == 0 {
		found = append(found, x.measure([]handle{m.ids}))
	}
	return x.intersect(found, within), nil
}

// A postingSet is the union of lists, by their handles.
type postingSet struct {
	lists []handle
	count int // ids; more than there are if lists share some
}

// planPatterns plans the patterns of all matchers.
func planPatterns(ms []model.Matcher) ([][]plan, error) {
	plans := make([][]plan, len(ms))
	for i, m := range ms {
		for _, p := range m.Patterns {
			if p == nil {
				return nil, &store.InputError{Reason: "matcher of tag " + m.Tag + " has no pattern"}
			}
			plans[i] = append(plans[i], newPlan(p))
		}
	}
	return plans, nil
}

// match returns the postings of the values of m that satisfy a matcher.
// x.mu must be held for reading.
func (x *Index) match(m *metric, matcher model.Matcher, plans []plan) postingSet {
	i, ok := m.find(matcher.Tag)
	if !ok {
		return postingSet{}
	}
	mt := &m.tags[i]
	var lists []handle
	for _, v := range matcher.Values {
		lists = mt.appendExact(lists, v)
	}
	for _, pl := range plans {
		for j := range pl {
			lists = mt.appendMatching(lists, &pl[j])
		}
	}
	if len(matcher.Values)+len(plans) > 1 || len(plans) == 1 && len(plans[0]) > 1 {
		slices.Sort(lists)
		lists = slices.Compact(lists)
	}
	return x.measure(lists)
}

// appendExact adds the postings of one value.
func (mt *metricTag) appendExact(lists []handle, value string) []handle {
	if number, ok := mt.tag.values.find(value); ok {
		if h, ok := mt.values.get(number); ok {
			lists = append(lists, h)
		}
	}
	return lists
}

// appendMatching adds the postings of the values that one branch of a pattern
// matches. It goes through the tag's values with the branch's prefix, or
// through the metric's, whichever are fewer; without a prefix and with a good
// part of all values in the metric, through the texts as they lie in memory.
func (mt *metricTag) appendMatching(lists []handle, b *branch) []handle {
	values := &mt.tag.values
	own := mt.values.len()
	switch {
	case b.exact != nil:
		for _, v := range b.exact {
			lists = mt.appendExact(lists, v)
		}
	case b.prefix != "" && values.count(b.prefix, own) <= own:
		for number := range values.ascend(b.prefix, "") {
			if h, ok := mt.values.get(number); ok && b.matches(values.texts[number]) {
				lists = append(lists, h)
			}
		}
	case 4*own < values.len():
		for number, h := range mt.values.all() {
			if b.matches(values.texts[number]) {
				lists = append(lists, h)
			}
		}
	default:
		for number, text := range values.texts {
			if text != "" && b.matches(text) {
				if h, ok := mt.values.get(uint32(number)); ok {
					lists = append(lists, h)
				}
			}
		}
	}
	return lists
}

// measure counts the ids of lists. x.mu must be held for reading.
func (x *Index) measure(lists []handle) postingSet {
	set := postingSet{lists: lists}
	for _, h := range lists {
		set.count += x.lists.len(h)
	}
	return set
}

// intersect returns the ids that are in all sets and in within, smallest set
// first: what is left is never more than that. x.mu must be held for reading.
func (x *Index) intersect(sets []postingSet, within *roaring.Bitmap) *roaring.Bitmap {
	slices.SortStableFunc(sets, func(a, b postingSet) int { return cmp.Compare(a.count, b.count) })
	result, shared := x.lists.union(sets[0].lists)
	and := func(other *roaring.Bitmap) {
		if shared {
			result, shared = roaring.And(result, other), false
		} else {
			result.And(other)
		}
	}
	for _, set := range sets[1:] {
		if result.IsEmpty() {
			break
		}
		other, _ := x.lists.union(set.lists)
		and(other)
	}
	if within != nil {
		and(within)
	}
	if shared {
		result = result.Clone()
	}
	return result
}
