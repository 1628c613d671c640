package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/store"
)

// Select returns the ids of the series of a metric that satisfy all matchers. The caller
// owns the result. An unknown metric has no series. Series that come or go meanwhile may be
// in the result or not. A matcher with a nil pattern is a *store.InputError. Select returns
// ctx's error soon after ctx has ended, also while it matches a pattern with many values. It
// reports its work to tick, see [store.Selection]; nil: to nobody.
//
// Patterns are matched without the lock: try copies values, Select matches them, and
// try checks whether they still exist. Nor do many matchers hold the lock for long:
// they are evaluated in groups, each of which filters the result of the previous ones.
func (x *Index) Select(ctx context.Context, metric string, ms []model.Matcher, tick func(work int) error) (*roaring.Bitmap, error) {
	conditions, err := newConditions(ms)
	if err != nil {
		return nil, err
	}
	var within *roaring.Bitmap
	for len(conditions) > groupMax {
		within, err = x.selectGroup(ctx, metric, conditions[:groupMax], within, tick)
		if err != nil || within.IsEmpty() {
			return within, err
		}
		conditions = conditions[groupMax:]
	}
	return x.selectGroup(ctx, metric, conditions, within, tick)
}

// selectGroup is Select for at most groupMax matchers. The result is in within; nil is all ids.
func (x *Index) selectGroup(ctx context.Context, metric string, conditions []condition, within *roaring.Bitmap, tick func(int) error) (*roaring.Bitmap, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ids, read, done := x.try(metric, conditions, within)
		if err := spend(tick, read); err != nil {
			return nil, err
		}
		if done {
			for i := range conditions {
				conditions[i].keep(x)
			}
			return ids, nil
		}
		for i := range conditions {
			if err := conditions[i].match(ctx, tick); err != nil {
				return nil, err
			}
		}
	}
}

// spend reports work to tick.
func spend(tick func(int) error, work int) error {
	if tick == nil {
		return nil
	}
	return tick(work)
}

// try is Select, unless values remain to be matched. Repeated calls end: the values to
// match are those that existed at the first call. read is how many values and ids it
// has read.
func (x *Index) try(metric string, conditions []condition, within *roaring.Bitmap) (ids *roaring.Bitmap, read int, done bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	defer func() { x.read.Add(int64(read)) }()
	m, ok := x.metric(metric)
	if !ok {
		return roaring.New(), read, true
	}
	done = true
	for i := range conditions {
		mt := x.tagOf(m, conditions[i].Tag, 0)
		if mt == nil && conditions[i].Absent {
			continue
		}
		if mt == nil {
			return roaring.New(), read, true
		}
		for j := range conditions[i].patterns {
			if read >= scanSlice {
				return nil, read, false // enough values are copied for now
			}
			ready, n := x.gather(mt, &conditions[i].patterns[j])
			done = done && ready
			read += n
		}
	}
	if !done {
		return nil, read, false
	}
	var few [4]postingSet // on the stack
	found := few[:0]
	for i := range conditions {
		set, n := x.postingsOf(m, &conditions[i])
		read += n
		switch {
		case len(set.lists) > 0:
			found = append(found, set)
		case !set.without:
			return roaring.New(), read, true
		}
	}
	if !slices.ContainsFunc(found, func(s postingSet) bool { return !s.without }) {
		found = append(found, x.measure([]handle{m.ids}))
	}
	ids, n := x.intersect(found, within)
	read += n
	return ids, read, true
}

// A postingSet is the union of lists, by their handles.
type postingSet struct {
	lists   []handle
	count   int  // ids; more than there are if lists share some
	without bool // its ids are excluded
}

// A condition is a matcher and the state of matching its patterns.
type condition struct {
	model.Matcher
	patterns []patternPlan
}

// A value is a value of a tag, copied while the index was locked.
type value struct {
	number uint32
	text   string
}

// A patternPlan is a pattern, its plan, and how far it is matched: against the values
// that the plan leaves, or, if these are many, against all values in a scan.
type patternPlan struct {
	expr  string
	plan  *plan
	begun bool
	todo  []value // to be matched
	found []value // that match; not used with a scan
	scan  *scan
	until int  // numbers from this on were added after the first call of try
	read  bool // scan differs from the cached one
}

const (
	// maxComparisons bounds the conditions of a selection that are compared with all
	// values of a tag. The result of each pattern takes up to 24 bytes per 64,000
	// values.
	maxComparisons = 128

	// groupMax is how many matchers are evaluated under one hold of the lock.
	groupMax = 16
)

// newConditions plans the patterns of all matchers.
func newConditions(ms []model.Matcher) ([]condition, error) {
	if n := comparisons(ms); n > maxComparisons {
		return nil, &store.InputError{Reason: fmt.Sprintf(
			"%d regular expressions and conditions of tags are more than %d; join several by | in one regular expression", n, maxComparisons)}
	}
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

// comparisons counts the matchers and patterns that concern all values of a tag. A
// value that is named, to include or exclude it, is only looked up.
func comparisons(ms []model.Matcher) (n int) {
	for _, m := range ms {
		n += len(m.Patterns)
		if m.Not != m.Absent {
			n++
		}
	}
	return n
}

// keep caches what c has found.
func (c *condition) keep(x *Index) {
	for i := range c.patterns {
		if p := &c.patterns[i]; p.scan != nil && p.read {
			x.scans.put(p.expr, p.scan)
		}
	}
}

// gather fills p.todo with the values to match next, and reports whether there are
// none. read is how many values it has read. x.mu must be held for reading.
func (x *Index) gather(mt *metricTag, p *patternPlan) (done bool, read int) {
	first := !p.begun
	p.begun = true
	switch {
	case len(p.plan.branches) == 0:
	case first && mt.scans(p.plan):
		if !mt.tag.values.watched.Load() {
			mt.tag.values.watched.Store(true)
		}
		p.scan, p.until = x.scans.get(mt.tag, p.expr), len(mt.tag.values.texts)
		var known bool
		if p.todo, known = p.scan.gather(p.todo, p.until); !known {
			*p.scan = scan{tag: mt.tag, at: mt.tag.values.changed()}
			p.todo, _ = p.scan.gather(p.todo, p.until)
		}
		read = len(p.todo)
	case first:
		p.todo, read = mt.candidates(p.plan)
	case p.scan == nil:
	case p.scan.tag != mt.tag:
		p.scan = nil // all values of the tag were removed meanwhile: its present ones are newer
	case p.scan.next >= p.until && p.scan.settle():
	default:
		var known bool
		if p.todo, known = p.scan.gather(p.todo, p.until); !known {
			// The tag changes too much for a scan. The values of the metric are enough.
			p.scan = nil
			p.todo = mt.own()
		}
		read = len(p.todo)
	}
	return len(p.todo) == 0, read
}

// match matches the values that gather has put into todo.
func (c *condition) match(ctx context.Context, tick func(int) error) error {
	for i := range c.patterns {
		p := &c.patterns[i]
		for _, v := range p.todo {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := spend(tick, store.MatchWork(v.text)); err != nil {
				return err
			}
			matches := v.text != "" && p.plan.matches(v.text)
			switch {
			case p.scan != nil:
				p.scan.set(v.number, matches)
			case matches:
				p.found = append(p.found, v)
			}
		}
		p.read = p.read || len(p.todo) > 0
		if p.todo = p.todo[:0]; p.scan == nil {
			p.todo = nil // no scan: this was all
		}
	}
	return nil
}

// directMax is the number of values that are matched without a scan.
const directMax = scanSlice

// scans reports whether a plan has to be matched against so many values that it is done
// in slices.
func (mt *metricTag) scans(pl *plan) bool {
	own := mt.values.len()
	if own <= directMax || own <= 4*directMax && 4*own < mt.tag.values.len() {
		return false
	}
	return mt.tag.values.countAll(pl.prefixes, directMax) > directMax
}

// candidates copies the values that a plan may match: the tag's values with one of the
// plan's prefixes, or the metric's values, whichever are fewer. If the metric has more
// than a quarter of the tag's values, it copies all of the tag's values, in memory
// order. read is how many values it has read.
func (mt *metricTag) candidates(pl *plan) (found []value, read int) {
	values := &mt.tag.values
	own := mt.values.len()
	switch {
	case pl.prefixes[0] != "" && values.countAll(pl.prefixes, own) <= own:
		for _, prefix := range pl.prefixes {
			for number := range values.ascend(prefix, "") {
				read++
				if mt.values.has(number) {
					found = append(found, value{number, values.texts[number]})
				}
			}
		}
	case 4*own < values.len():
		found, read = mt.own(), own
	default:
		read = len(values.texts)
		found = make([]value, 0, read)
		for number, text := range values.texts {
			found = append(found, value{uint32(number), text})
		}
	}
	return found, read
}

// own copies the values of the metric.
func (mt *metricTag) own() []value {
	found := make([]value, 0, mt.values.len())
	for number := range mt.values.all() {
		found = append(found, value{number, mt.tag.values.texts[number]})
	}
	return found
}

// postingsOf returns the series of m that satisfy a condition whose patterns are all
// matched, and how many values it has read. The set has the series with a value that
// satisfies the condition. If series without the tag satisfy it too, the set has, as
// excluded ids, those with a value that does not. x.mu must be held for reading.
func (x *Index) postingsOf(m *metric, c *condition) (set postingSet, read int) {
	mt := x.tagOf(m, c.Tag, 0)
	if mt == nil {
		return postingSet{without: true}, 0
	}
	if c.Plain() && mt.all(c) && int(mt.series) == x.lists.len(m.ids) {
		return x.measure([]handle{m.ids}), 1
	}
	lists, read := mt.listsOf(c)
	if c.Not != c.Absent {
		lists = mt.others(lists)
		read += mt.values.len()
	}
	set = x.measure(lists)
	set.without = c.Absent
	return set, read
}

// others returns the postings of the values whose postings are not in lists, which must
// be ascending.
func (mt *metricTag) others(lists []handle) []handle {
	others := make([]handle, 0, mt.values.len())
	for _, h := range mt.values.all() {
		if _, there := slices.BinarySearch(lists, h); !there {
			others = append(others, h)
		}
	}
	return others
}

// listsOf returns the postings of the values that satisfy c, regardless of Not, and how
// many values it has read. Unless the condition is plain, they are ascending.
func (mt *metricTag) listsOf(c *condition) (lists []handle, read int) {
	for _, v := range c.Values {
		lists = mt.appendExact(lists, v)
		read++
	}
	var scans []*scan
	for _, p := range c.patterns {
		if p.scan != nil {
			scans = append(scans, p.scan)
			continue
		}
		for _, v := range p.plan.exact {
			lists = mt.appendExact(lists, v)
		}
		read += len(p.plan.exact)
		for _, v := range p.found {
			if mt.tag.values.is(v.number, v.text) {
				if h, ok := mt.values.get(v.number); ok {
					lists = append(lists, h)
				}
			}
		}
	}
	if len(scans) > 0 {
		all := unionOf(scans)
		lists = all.appendTo(lists, mt)
		read += min(all.count, mt.values.len())
	}
	if !c.Plain() || len(c.Values)+len(c.patterns) > 1 || len(c.patterns) == 1 && len(c.patterns[0].plan.exact) > 0 {
		slices.Sort(lists)
		lists = slices.Compact(lists)
	}
	return lists, read
}

// all reports whether c is known to be satisfied by every existing value.
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

// measure counts the ids of lists. x.mu must be held for reading.
func (x *Index) measure(lists []handle) postingSet {
	set := postingSet{lists: lists}
	for _, h := range lists {
		set.count += x.lists.len(h)
	}
	return set
}

// intersect returns the ids that are in all wanted sets and in within, and in no
// excluded set. At least one set must be wanted. intersect begins with the smallest
// set, so the result never exceeds it. A set that is much larger than the present
// result is not built, but queried for each id. read counts the ids read. x.mu must be
// held for reading.
func (x *Index) intersect(sets []postingSet, within *roaring.Bitmap) (ids *roaring.Bitmap, read int) {
	slices.SortStableFunc(sets, func(a, b postingSet) int {
		switch {
		case a.without == b.without:
			return cmp.Compare(a.count, b.count)
		case b.without:
			return -1
		}
		return 1
	})
	result, shared := x.lists.union(sets[0].lists)
	read = sets[0].count
	for _, set := range sets[1:] {
		left := int(result.GetCardinality())
		if left == 0 {
			break
		}
		if asks := left * len(set.lists); asks <= set.count/4 {
			result, shared = x.lists.filter(result, set.lists, !set.without), false
			read += asks
			continue
		}
		other, _ := x.lists.union(set.lists)
		read += set.count
		switch {
		case set.without && shared:
			result, shared = roaring.AndNot(result, other), false
		case set.without:
			result.AndNot(other)
		case shared:
			result, shared = roaring.And(result, other), false
		default:
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
