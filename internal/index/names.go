package index

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"varve/internal/model"
	"varve/internal/store"
)

// Names lists metric names, tag names or tag values in the order of
// model.CompareNames, each once. Without q.Metric it lists the tag names and
// values of all metrics, without q.Tag the values of all tags. more says that
// q.Limit cut the list. An unknown q.Kind is a *store.InputError.
func (x *Index) Names(q store.NamesQuery) (names []string, more bool, err error) {
	f := newFilter(q)
	x.mu.RLock()
	defer x.mu.RUnlock()
	switch q.Kind {
	case store.MetricNames:
		names = f.page(&x.names, nil)
	case store.TagNames:
		names = x.tagNames(f, q.Metric)
	case store.TagValues:
		names = x.tagValues(f, q.Metric, q.Tag)
	default:
		return nil, false, &store.InputError{Reason: fmt.Sprintf("unknown kind of names %d", q.Kind)}
	}
	if q.Limit > 0 && len(names) > q.Limit {
		return names[:q.Limit:q.Limit], true, nil
	}
	return names, false, nil
}

// tagNames lists tag names, of one metric if metric is not "".
// x.mu must be held for reading.
func (x *Index) tagNames(f filter, metric string) []string {
	if metric == "" {
		return f.page(&x.keys, nil)
	}
	var names []string
	if m, ok := x.metric(metric); ok {
		for i := range m.tags {
			if name := m.tags[i].tag.name; f.accepts(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// tagValues lists the values of a tag, or of all tags if tag is "", in one
// metric, or in all if metric is "". x.mu must be held for reading.
func (x *Index) tagValues(f filter, metric, tag string) []string {
	var names []string
	tags := 0
	for page := range x.valuePages(f, metric, tag) {
		if tags++; tags == 1 {
			names = page
			continue
		}
		// Each page is complete up to the limit, so what is cut here can not
		// be among the first.
		names = append(names, page...)
		slices.SortFunc(names, model.CompareNames)
		names = slices.Compact(names)
		if f.most > 0 && len(names) > f.most {
			names = names[:f.most]
		}
	}
	return names
}

// valuePages yields the values of each tag that is asked for.
// x.mu must be held for reading.
func (x *Index) valuePages(f filter, metric, tag string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		if metric == "" {
			for _, t := range x.tags {
				if t != nil && (tag == "" || t.name == tag) && !yield(f.page(&t.values, nil)) {
					return
				}
			}
			return
		}
		m, ok := x.metric(metric)
		if !ok {
			return
		}
		for i := range m.tags {
			mt := &m.tags[i]
			if (tag == "" || mt.tag.name == tag) && !yield(f.page(&mt.tag.values, &mt.values)) {
				return
			}
		}
	}
}

// A filter is what a NamesQuery asks of each name.
type filter struct {
	prefix string
	after  string
	plan   plan // nil: no pattern
	none   bool // prefix and pattern exclude each other
	most   int  // names worth finding: one more than the limit; 0 = all
}

// newFilter reads the conditions of q.
func newFilter(q store.NamesQuery) filter {
	f := filter{prefix: q.Prefix, after: q.After}
	if q.Limit > 0 {
		f.most = q.Limit + 1
	}
	if q.Pattern == nil {
		return f
	}
	f.plan = newPlan(q.Pattern)
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
		(f.plan == nil || f.plan.matches(name))
}

// page lists the names of d that are wanted and, if only is not nil, in only:
// in order, f.most at most.
func (f *filter) page(d *dictionary, only *valueTable) []string {
	if f.none {
		return nil
	}
	if len(f.plan) == 1 && f.plan[0].exact != nil {
		return f.lookUp(d, only)
	}
	// Few names of a large dictionary are sorted rather than searched in it.
	if only != nil && 16*only.len() < d.len() {
		return f.sorted(d, only)
	}
	var names []string
	for id := range d.ascend(f.prefix, f.after) {
		if only != nil {
			if _, ok := only.get(id); !ok {
				continue
			}
		}
		name := d.texts[id]
		if name == f.after || f.plan != nil && !f.plan.matches(name) {
			continue
		}
		if names = append(names, name); len(names) == f.most {
			break
		}
	}
	return names
}

// lookUp is page for a pattern that is a set of texts.
func (f *filter) lookUp(d *dictionary, only *valueTable) []string {
	var names []string
	for _, name := range f.plan[0].exact {
		id, ok := d.find(name)
		if ok && only != nil {
			_, ok = only.get(id)
		}
		if ok && f.accepts(name) {
			names = append(names, d.texts[id])
		}
	}
	return f.cut(names)
}

// sorted is page for a small set.
func (f *filter) sorted(d *dictionary, only *valueTable) []string {
	var names []string
	for id := range only.all() {
		if name := d.texts[id]; f.accepts(name) {
			names = append(names, name)
		}
	}
	return f.cut(names)
}

// cut orders names and drops those that are too many.
func (f *filter) cut(names []string) []string {
	slices.SortFunc(names, model.CompareNames)
	if f.most > 0 && len(names) > f.most {
		names = names[:f.most]
	}
	return names
}
