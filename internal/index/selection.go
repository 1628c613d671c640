package index

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/store"
)

// Select returns the ids of the series of a metric that satisfy all matchers
// and are in within; nil stands for all ids. The result is the caller's own.
// A metric that is not known has no series. A matcher with a nil pattern is a
// *store.InputError. Select ends with ctx's error soon after ctx has ended, also
// while it matches a pattern with many values.
func (x *Index) Select(ctx context.Context, metric string, ms []model.Matcher, within *roaring.Bitmap) (*roaring.Bitmap, error) {
	conditions, err := newConditions(ms)
	if err != nil {
		return nil, err
	}
	for slices := 1; ; slices++ {
		most := scanSlice
		if slices == scanSlices {
			most = math.MaxInt
		}
		ids, done := x.try(ctx, metric, conditions, within, most)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if done {
			for i := range conditions {
				conditions[i].keep(x)
			}
			return ids, nil
		}
	}
}

// try is Select, unless more than most values of a tag are still to be matched.
func (x *Index) try(ctx context.Context, metric string, conditions []condition, within *roaring.Bitmap, most int) (ids *roaring.Bitmap, done bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	read := 0
	defer func() { x.read.Add(int64(read)) }()
	m, ok := x.metric(metric)
	if !ok {
		return roaring.New(), true
	}
	for i := range conditions {
		c := &conditions[i]
		at, ok := m.find(c.Tag)
		if !ok {
			return roaring.New(), true
		}
		done, n := x.prepare(ctx, &m.tags[at], c, most)
		read += n
		if !done {
			return nil, false
		}
	}
	found := make([]postingSet, 0, len(conditions)+1)
	for i := range conditions {
		set, n := x.match(ctx, m, &conditions[i])
		read += n
		if len(set.lists) == 0 {
			return roaring.New(), true
		}
		found = append(found, set)
	}
	if len(found) == 0 {
		found = append(found, x.measure([]handle{m.ids}))
	}
	ids, n := x.intersect(found, within)
	read += n
	return ids, true
}

// A postingSet is the union of lists, by their handles.
type postingSet struct {
	lists []handle
	count int // ids; more than there are if lists share some
}

// A condition is a matcher and how its patterns are matched.
type condition struct {
	model.Matcher
	patterns []patternPlan
}

// A patternPlan is a pattern, its plan, and, if the plan has to be matched
// against many values, the state of that.
type patternPlan struct {
	expr string
	plan plan
	scan *scan
	read bool // scan was not as the cache had it
}

// newConditions plans the patterns of all matchers.
func newConditions(ms []model.Matcher) ([]condition, error) {
	conditions := make([]condition, len(ms))
	for i, m := range ms {
		conditions[i].Matcher = m
		for _, p := range m.Patterns {
			if p == nil {
				return nil, &store.InputError{Reason: "matcher of tag " + m.Tag + " has no pattern"}
			}
			conditions[i].patterns = append(conditions[i].patterns, patternPlan{expr: p.String(), plan: planOf(p)})
		}
	}
	return conditions, nil
}

// keep gives the cache what c has found.
func (c *condition) keep(x *Index) {
	for i := range c.patterns {
		if p := &c.patterns[i]; p.scan != nil && p.read {
			x.scans.put(p.expr, p.scan)
		}
	}
}

// prepare advances the scans that c needs and reports whether they are up to
// date. x.mu must be held for reading.
func (x *Index) prepare(ctx context.Context, mt *metricTag, c *condition, most int) (done bool, read int) {
	done = true
	for i := range c.patterns {
		p := &c.patterns[i]
		if !mt.scans(p.plan) {
			p.scan = nil
			continue
		}
		if p.scan == nil || p.scan.tag != mt.tag {
			p.scan = x.scans.get(mt.tag, p.expr, p.plan)
		}
		if !mt.tag.values.watched.Load() {
			mt.tag.values.watched.Store(true)
		}
		ready, n := p.scan.advance(ctx, most)
		p.read = p.read || n > 0
		read += n
		done = done && ready
	}
	return done, read
}

// directMax is the number of values that are matched without a scan.
const directMax = scanSlice

// scans reports whether a plan has to be matched against so many values that
// it is done in slices.
func (mt *metricTag) scans(pl plan) bool {
	own := mt.values.len()
	if own <= directMax || own <= 4*directMax && 4*own < mt.tag.values.len() {
		return false
	}
	for i := range pl {
		b := &pl[i]
		if b.exact == nil && (b.prefix == "" || mt.tag.values.count(b.prefix, directMax) > directMax) {
			return true
		}
	}
	return false
}

// match returns the postings of the values of m that satisfy a matcher, and
// how many values it looked at. x.mu must be held for reading.
func (x *Index) match(ctx context.Context, m *metric, c *condition) (set postingSet, read int) {
	i, _ := m.find(c.Tag)
	mt := &m.tags[i]
	if mt.all(c) && int(mt.series) == x.lists.len(m.ids) {
		return x.measure([]handle{m.ids}), 1
	}
	var lists []handle
	for _, v := range c.Values {
		lists = mt.appendExact(lists, v)
		read++
	}
	for _, p := range c.patterns {
		if p.scan != nil {
			lists = p.scan.appendTo(lists, mt)
			read += min(p.scan.count, mt.values.len())
			continue
		}
		for j := range p.plan {
			var n int
			lists, n = mt.appendMatching(ctx, lists, &p.plan[j])
			read += n
		}
	}
	if len(c.Values)+len(c.patterns) > 1 || len(c.patterns) == 1 && len(c.patterns[0].plan) > 1 {
		slices.Sort(lists)
		lists = slices.Compact(lists)
	}
	return x.measure(lists), read
}

// all reports whether c is known to be satisfied by every value there is.
func (mt *metricTag) all(c *condition) bool {
	return slices.ContainsFunc(c.patterns, func(p patternPlan) bool {
		return p.scan != nil && p.scan.count == mt.tag.values.len()
	})
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
// through the metric's, whichever are fewer (and says how many); without a prefix and with a good
// part of all values in the metric, through the texts as they lie in memory.
func (mt *metricTag) appendMatching(ctx context.Context, lists []handle, b *branch) ([]handle, int) {
	values := &mt.tag.values
	own := mt.values.len()
	read := 0
	switch {
	case b.exact != nil:
		read = len(b.exact)
		for _, v := range b.exact {
			lists = mt.appendExact(lists, v)
		}
	case b.prefix != "" && values.count(b.prefix, own) <= own:
		for number := range values.ascend(b.prefix, "") {
			read++
			if ctx.Err() != nil {
				break
			}
			if h, ok := mt.values.get(number); ok && b.matches(values.texts[number]) {
				lists = append(lists, h)
			}
		}
	case 4*own < values.len():
		read = own
		for number, h := range mt.values.all() {
			if ctx.Err() != nil {
				break
			}
			if b.matches(values.texts[number]) {
				lists = append(lists, h)
			}
		}
	default:
		read = len(values.texts)
		for number, text := range values.texts {
			if ctx.Err() != nil {
				break
			}
			if text != "" && b.matches(text) {
				if h, ok := mt.values.get(uint32(number)); ok {
					lists = append(lists, h)
				}
			}
		}
	}
	return lists, read
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
// first: what is left is never more than that. A set that is much larger than
// what is left is not put together, but asked for each id. read counts ids that
// were looked at. x.mu must be held for reading.
func (x *Index) intersect(sets []postingSet, within *roaring.Bitmap) (ids *roaring.Bitmap, read int) {
	slices.SortStableFunc(sets, func(a, b postingSet) int { return cmp.Compare(a.count, b.count) })
	result, shared := x.lists.union(sets[0].lists)
	read = sets[0].count
	for _, set := range sets[1:] {
		left := int(result.GetCardinality())
		if left == 0 {
			break
		}
		if asks := left * len(set.lists); asks <= set.count/4 {
			result, shared = x.lists.filter(result, set.lists), false
			read += asks
			continue
		}
		other, _ := x.lists.union(set.lists)
		read += set.count
		if shared {
			result, shared = roaring.And(result, other), false
		} else {
			result.And(other)
		}
	}
	switch {
	case within != nil && shared:
		result = roaring.And(result, within)
	case within != nil:
		result.And(within)
	case shared:
		result = result.Clone()
	}
	return result, read
}
