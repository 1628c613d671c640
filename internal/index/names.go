package index

import (
	"context"
	"slices"
	"strings"

	"varve/internal/model"
	"varve/internal/store"
)

// Names lists metric names, tag names or tag values in the order of model.CompareNames,
// each once. Without q.Metric it lists the tag names and values of all metrics, without
// q.Tag the values of all tags. more is true if q.Limit has cut the list. An unknown
// q.Kind is a *store.InputError. Names returns ctx's error soon after ctx has ended.
func (x *Index) Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error) {
	if err := q.Check(); err != nil {
		return nil, false, err
	}
	f := newFilter(ctx, q)
	switch {
	case q.Delimiter != 0:
		names = x.level(f, q)
	case q.Kind == store.MetricNames:
		names = x.page(f, func() (*dictionary, subset) { return &x.names, nil })
	case q.Kind == store.TagNames:
		names = x.tagNames(f, q.Metric)
	default:
		names = x.tagValues(f, q.Metric, q.Tag)
	}
	if *f.failed != nil {
		return nil, false, *f.failed
	}
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	if q.Limit > 0 && len(names) > q.Limit {
		return names[:q.Limit:q.Limit], true, nil
	}
	return names, false, nil
}

// level lists one level of the tree of metrics: after each entry it seeks the next one,
// skipping everything below the entry.
func (x *Index) level(f filter, q store.NamesQuery) (names []string) {
	from := q.After
	if beyond, ok := q.Beyond(q.After); ok {
		from = beyond
	}
	for more := true; more && f.goesOn(namesSlice); {
		names, from, more = x.lookLevel(names, from, &f, &q)
	}
	return names
}

// lookLevel appends some entries to names, starting at from. If there may be more, next
// is where to continue.
func (x *Index) lookLevel(names []string, from string, f *filter, q *store.NamesQuery) (_ []string, next string, more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for work := 0; work < namesSlice; {
		work += 16 // seeking takes longer than the next one
		seek := false
		for id := range x.names.ascend(q.Prefix, from) {
			if f.most > 0 && len(names) == f.most {
				return names, "", false
			}
			name := x.names.texts[id]
			entry := q.Entry(name)
			if q.After == "" || model.CompareNames(entry, q.After) > 0 {
				names = append(names, entry)
			}
			beyond, branch := q.Beyond(entry)
			if seek = branch; seek {
				from = beyond
				break
			}
			if work++; work >= namesSlice {
				return names, name + "\x00", true
			}
		}
		if !seek {
			return names, "", false
		}
	}
	return names, from, true
}

// tagNames lists tag names, of one metric if metric is not "".
func (x *Index) tagNames(f filter, metric string) []string {
	return x.page(f, func() (*dictionary, subset) {
		if metric == "" {
			return &x.keys, nil
		}
		if m, ok := x.metric(metric); ok {
			return &x.keys, m.tags
		}
		return nil, nil
	})
}

// tagValues lists the values of a tag, or of all tags if tag is "", in one
// metric, or in all if metric is "".
func (x *Index) tagValues(f filter, metric, tag string) []string {
	of := func(tag string) []string {
		return x.page(f, func() (*dictionary, subset) { return x.valuesOf(metric, tag) })
	}
	if tag != "" {
		return of(tag)
	}
	// Each page is complete up to the limit, so names that are cut here cannot be among
	// the first.
	var names []string
	ordered := 0 // number of names that are in order
	order := func() {
		slices.SortFunc(names, model.CompareNames)
		names = slices.Compact(names)
		if f.most > 0 && len(names) > f.most {
			names = names[:f.most]
		}
		ordered = len(names)
	}
	for _, tag := range x.tagNames(filter{ctx: f.ctx, tick: f.tick, failed: f.failed}, metric) {
		if f.over() {
			return nil
		}
		if names = append(names, of(tag)...); len(names) > 2*ordered+namesSlice {
			order()
		}
	}
	order()
	return names
}

// valuesOf returns the values of a tag, and which of them a metric has, unless
// metric is "". Both are nil if the tag is gone. x.mu must be held for reading.
func (x *Index) valuesOf(metric, tag string) (*dictionary, subset) {
	if metric == "" {
		if number, ok := x.keys.find(tag); ok {
			return &x.tags[number].values, nil
		}
		return nil, nil
	}
	if m, ok := x.metric(metric); ok {
		if mt := x.tagOf(m, tag, 0); mt != nil {
			return &mt.tag.values, &mt.values
		}
	}
	return nil, nil
}

// A filter holds the conditions of a NamesQuery.
type filter struct {
	ctx    context.Context // no name is accepted once it has ended
	tick   func(work int) error
	failed *error // the error of tick; no name is accepted after it
	prefix string
	after  string
	plan   *plan // nil: no pattern
	none   bool  // prefix and pattern exclude each other
	most   int   // names worth finding: one more than the limit; 0 = all
}

// newFilter reads the conditions of q.
func newFilter(ctx context.Context, q store.NamesQuery) filter {
	f := filter{ctx: ctx, tick: q.Tick, failed: new(error), prefix: q.Prefix, after: q.After}
	if q.Limit > 0 {
		f.most = q.Limit + 1
	}
	if q.Pattern == nil {
		return f
	}
	f.plan = planOf(q.Pattern)
	switch prefix := f.plan.prefix(); {
	case strings.HasPrefix(prefix, f.prefix):
		f.prefix = prefix
	case !strings.HasPrefix(f.prefix, prefix):
		f.none = true
	}
	return f
}

// accepts reports whether name is wanted.
func (f *filter) accepts(name string) bool {
	return !f.none && strings.HasPrefix(name, f.prefix) &&
		(f.after == "" || model.CompareNames(name, f.after) > 0) &&
		(f.plan == nil || f.matches(name))
}

// over reports whether no more names are wanted.
func (f *filter) over() bool { return *f.failed != nil || f.ctx.Err() != nil }

// goesOn yields to others after some work, and reports whether more names are wanted.
func (f *filter) goesOn(work int) bool {
	if !f.over() {
		*f.failed = spend(f.tick, work)
	}
	return !f.over()
}

// matches reports whether the pattern matches a name.
func (f *filter) matches(name string) bool {
	return f.goesOn(store.MatchWork(name)) && f.plan.matches(name)
}

// namesSlice is how many names are read under the lock: some ten microseconds. Patterns
// are matched after that.
const namesSlice = 4096

// page lists the wanted names of a dictionary that are also in the subset, if there is
// one: in order, at most f.most. where returns both under x.mu, held for reading.
// Between two slices writers get the lock; names that come or go meanwhile may be
// listed or not.
func (x *Index) page(f filter, where func() (*dictionary, subset)) []string {
	switch {
	case f.none:
		return nil
	case f.plan != nil && len(f.plan.branches) == 0:
		return f.cut(x.lookUp(f.plan.exact, where))
	}
	most := namesSlice
	if f.plan == nil && f.most > 0 {
		most = min(most, f.most+1) // one may be f.after
	}
	var names, found []string
	for from, more := f.after, true; more && f.goesOn(most/16); {
		var ordered bool
		found, from, more, ordered = x.look(found[:0], f.prefix, from, most, where)
		if !ordered {
			return f.cut(found)
		}
		for _, name := range found {
			if name == f.after || f.plan != nil && !f.matches(name) {
				continue
			}
			if names = append(names, name); len(names) == f.most {
				return names
			}
		}
	}
	return names
}

// look appends at most most names with a prefix to found, starting at from. If there
// may be more, next is where to continue. A small subset of a large dictionary is
// listed at once and out of order, which is cheaper than finding it in the dictionary.
func (x *Index) look(found []string, prefix, from string, most int, where func() (*dictionary, subset)) (_ []string, next string, more, ordered bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	d, only := where()
	if d == nil {
		return found, "", false, true
	}
	if only != nil && 16*only.len() < d.len() {
		for id := range only.numbers() {
			found = append(found, d.texts[id])
		}
		return found, "", false, false
	}
	looked := 0
	for id := range d.ascend(prefix, from) {
		if looked == most {
			return found, d.texts[id], true, true
		}
		looked++
		if only == nil || only.has(id) {
			found = append(found, d.texts[id])
		}
	}
	return found, "", false, true
}

// lookUp lists which of some texts exist.
func (x *Index) lookUp(texts []string, where func() (*dictionary, subset)) (names []string) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	d, only := where()
	if d == nil {
		return nil
	}
	for _, name := range texts {
		if id, ok := d.find(name); ok && (only == nil || only.has(id)) {
			names = append(names, d.texts[id])
		}
	}
	return names
}

// cut sorts the wanted ones of some names and drops those beyond the limit.
func (f *filter) cut(names []string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return !f.accepts(name) })
	slices.SortFunc(names, model.CompareNames)
	if f.most > 0 && len(names) > f.most {
		names = names[:f.most]
	}
	return names
}
