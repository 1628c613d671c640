package rollup

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
)

// A bucket has one result. It may have had another one before. The earlier one may have
// another time, if results have the time of the bucket's first point (see pass.cut). Or it
// may have another type: longs and doubles of one name are two series, and a sum becomes a
// double when the first fraction arrives. The functions here delete the earlier result.

// placeOf returns the times at which results are outdated by one of a time: all of its
// bucket, or that time alone where a bucket may have several results.
func (o *output) placeOf(ms int64) model.TimeRange {
	if o.bucketOf == nil {
		return model.TimeRange{StartMS: ms, EndMS: ms}
	}
	return o.bucketOf(ms)
}

// A destination is a tag set under which a flush stores points that can replace each
// other: longs and doubles, or points of one other type.
type destination struct {
	destinationKey
	metric string
	types  []model.Type   // of points, in the order of has
	has    []bool         // series that are stored, or will be
	found  bool           // a series was stored before the flush
	groups []*outputGroup // several, if they differ in more than tags
}

type destinationKey struct {
	tags model.Tags
	typ  model.Type // empty: longs and doubles
}

func newDestination(metric string, key destinationKey) *destination {
	t := &destination{destinationKey: key, metric: metric, types: []model.Type{model.TypeLong, model.TypeDouble}}
	if key.typ != "" {
		t.types = []model.Type{key.typ}
	}
	t.has = make([]bool, len(t.types))
	return t
}

func (t *destination) series(i int) model.Series {
	return model.Series{Metric: t.metric, Tags: t.tags, Type: t.types[i]}
}

// typeOf returns the place in t.types of a point of a group.
func (t *destination) typeOf(g *outputGroup, p *agg.Point) (int, bool) {
	i := slices.Index(t.types, g.typeOf(p.Kind))
	return i, i >= 0
}

// mixed reports that there are both longs and doubles.
func (t *destination) mixed() bool { return len(t.has) == 2 && t.has[0] && t.has[1] }

// replaced returns the destinations of the flush under which there may be results that
// it replaces. Where there are both longs and doubles, whole numbers become doubles as
// far as they are exact, so that most results are of one type.
func (o *output) replaced(ctx context.Context) ([]*destination, error) {
	destinations := o.destinations()
	if err := o.lookUp(ctx, destinations); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(destinations, func(t *destination) bool {
		if t.mixed() {
			for _, g := range t.groups {
				g.toDoubles()
			}
			return false
		}
		return o.bucketOf == nil || !t.found && len(t.groups) == 1
	}), nil
}

// destinations returns the destinations of the flush and the types of its points.
func (o *output) destinations() []*destination {
	var all []*destination
	by := map[destinationKey]*destination{}
	for _, g := range o.groups {
		tags, err := model.NewTags(g.names.Tags...)
		if err != nil {
			continue // refused when it is stored
		}
		var last *destination
		for i := range g.points {
			p := &g.points[i]
			key := destinationKey{tags: tags}
			if typ := g.typeOf(p.Kind); typ != model.TypeLong && typ != model.TypeDouble {
				key.typ = typ
			}
			if last == nil || last.typ != key.typ {
				if last = by[key]; last == nil {
					last = newDestination(o.metric, key)
					by[key], all = last, append(all, last)
				}
				last.groups = append(last.groups, g)
			}
			n, _ := last.typeOf(g, p)
			last.has[n] = true
		}
	}
	return all
}

// exactLong is the largest whole number up to which a double holds all.
const exactLong = 1 << 53

func (g *outputGroup) toDoubles() {
	for i := range g.points {
		p := &g.points[i]
		if v := int64(p.Bits); p.Kind == model.Long && v >= -exactLong && v <= exactLong {
			p.Kind, p.Bits = model.Double, math.Float64bits(float64(v))
		}
	}
}

// lookUp adds to the destinations the series that the store has. A store that several
// processes work on does not know without a look what the others have written.
func (o *output) lookUp(ctx context.Context, destinations []*destination) (err error) {
	if o.scheduler.shared == nil {
		for _, t := range destinations {
			for i := range t.types {
				_, ok := o.scheduler.store.Lookup(t.series(i).AppendKey(nil))
				t.has[i], t.found = t.has[i] || ok, t.found || ok
			}
		}
		return nil
	}
	if len(destinations) == 0 {
		return nil
	}
	view, err := store.OpenCurrent(ctx, o.scheduler.store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	stored, err := o.existing(ctx, view, destinations)
	if err != nil {
		return err
	}
	for _, t := range destinations {
		for i := range t.types {
			_, ok := stored[t.series(i)]
			t.has[i], t.found = t.has[i] || ok, t.found || ok
		}
	}
	return nil
}

// existing returns what the store has of the destinations in the buckets of the flush.
// A selection may find many series more, which are not kept.
func (o *output) existing(ctx context.Context, view store.View, destinations []*destination) (map[model.Series]store.Series, error) {
	wanted, stored := map[model.Series]bool{}, map[model.Series]store.Series{}
	for _, t := range destinations {
		for i := range t.types {
			wanted[t.series(i)] = true
		}
	}
	within := o.timesOf(destinations)
	for _, matchers := range o.selections(destinations) {
		for s, err := range view.Select(ctx, store.Selection{Metric: o.metric, Matchers: matchers, Range: within, AnyOrder: true}) {
			if err != nil {
				return nil, err
			}
			if wanted[s.Series] {
				stored[s.Series] = s
			}
		}
	}
	return stored, nil
}

// selections divides the destinations into selections. In memory each is found by
// itself. Elsewhere a selection is a round trip, and one finds them all by the tags
// that they have in common.
func (o *output) selections(destinations []*destination) [][]model.Matcher {
	if o.scheduler.shared == nil {
		var each [][]model.Matcher
		for _, t := range destinations {
			each = append(each, model.Matchers(t.tags.Slice()))
		}
		return each
	}
	common := destinations[0].tags.Slice()
	for _, t := range destinations[1:] {
		common = slices.DeleteFunc(common, func(c model.Tag) bool {
			v, ok := t.tags.Get(c.Name)
			return !ok || v != c.Value
		})
	}
	return [][]model.Matcher{model.Matchers(common)}
}

// timesOf is the time from the first to the last bucket of destinations.
func (o *output) timesOf(destinations []*destination) model.TimeRange {
	r := model.TimeRange{StartMS: math.MaxInt64, EndMS: math.MinInt64}
	for _, t := range destinations {
		for _, g := range t.groups {
			for i := range g.points {
				r.StartMS, r.EndMS = min(r.StartMS, g.points[i].TimeMS), max(r.EndMS, g.points[i].TimeMS)
			}
		}
	}
	return model.TimeRange{StartMS: o.placeOf(r.StartMS).StartMS, EndMS: o.placeOf(r.EndMS).EndMS}
}

// replace deletes what the points that were stored have replaced.
func (o *output) replace(ctx context.Context, destinations []*destination) error {
	if len(destinations) == 0 {
		return nil
	}
	deletions, err := o.outdated(ctx, destinations)
	if err != nil || len(deletions) == 0 {
		return err
	}
	return o.scheduler.store.Delete(ctx, deletions...)
}

// outdated finds out what is to be deleted. There are at most two deletions for each
// point of the flush, and one for each destination.
func (o *output) outdated(ctx context.Context, destinations []*destination) (deletions []store.Deletion, err error) {
	view, err := store.OpenCurrent(ctx, o.scheduler.store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	within := o.timesOf(destinations)
	stored, err := o.existing(ctx, view, destinations)
	if err != nil {
		return nil, err
	}
	for _, t := range inOrderOf(stored, destinations) {
		readers := make([]*stampReader, len(t.types))
		for i := range readers {
			readers[i] = &stampReader{}
			if s, ok := stored[t.series(i)]; ok {
				readers[i].cursor = view.Read(ctx, s, store.ReadOptions{Range: within})
			}
		}
		deletions, err = t.outdated(deletions, readers, o.placeOf)
		for _, r := range readers {
			r.close()
		}
		if err != nil {
			return nil, err
		}
	}
	return deletions, nil
}

// inOrderOf sorts destinations by the order in which the store has selected them, in
// which it reads them fastest.
func inOrderOf(stored map[model.Series]store.Series, destinations []*destination) []*destination {
	ref := func(t *destination) store.Ref {
		first := store.Ref(math.MaxUint32)
		for i := range t.types {
			if s, ok := stored[t.series(i)]; ok {
				first = min(first, s.Ref)
			}
		}
		return first
	}
	slices.SortStableFunc(destinations, func(a, b *destination) int { return cmp.Compare(ref(a), ref(b)) })
	return destinations
}

// outdated appends what is to be deleted of a destination: stretches of time in which a
// series has only results that were replaced. A result of any type whose bucket was not
// computed ends a stretch, since one row may hold longs and doubles: see
// [store.DeletionOf].
func (t *destination) outdated(deletions []store.Deletion, stored []*stampReader, placeOf func(int64) model.TimeRange) ([]store.Deletion, error) {
	now := t.results(placeOf)
	stretches := make([]*model.TimeRange, len(stored))
	end := func(n int) {
		if r := stretches[n]; r != nil {
			deletions = append(deletions, store.DeletionOf(t.series(n), *r))
			stretches[n] = nil
		}
	}
	for {
		n, ms, ok, err := first(stored)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		result, computed := now[placeOf(ms).StartMS]
		if !computed {
			for i := range stretches {
				end(i)
			}
			continue
		}
		if result == (place{ms, n}) {
			end(n)
			continue
		}
		if stretches[n] == nil {
			stretches[n] = &model.TimeRange{StartMS: ms}
		}
		stretches[n].EndMS = ms
	}
	for n := range stretches {
		end(n)
	}
	return deletions, nil
}

// A place is a time and a type, by its place in destination.types.
type place struct {
	ms  int64
	typ int
}

// results returns what was stored, by the start of its bucket. Of two groups the later
// one counts, as in the store.
func (t *destination) results(placeOf func(int64) model.TimeRange) map[int64]place {
	results := map[int64]place{}
	for _, g := range t.groups {
		for i := range g.points {
			p := &g.points[i]
			if n, ok := t.typeOf(g, p); ok && !g.refused[p.TimeMS] {
				results[placeOf(p.TimeMS).StartMS] = place{p.TimeMS, n}
			}
		}
	}
	return results
}

// first takes the earliest of the next samples.
func first(stored []*stampReader) (n int, ms int64, ok bool, err error) {
	for i, r := range stored {
		head, more, err := r.peek()
		if err != nil {
			return 0, 0, false, err
		}
		if more && (!ok || head < ms) {
			n, ms, ok = i, head, true
		}
	}
	if ok {
		stored[n].at++
	}
	return n, ms, ok, nil
}

// A stampReader reads the times of a series, none if there is no cursor.
type stampReader struct {
	cursor store.Cursor
	times  []int64
	at     int
}

// peek returns the next time without taking it.
func (r *stampReader) peek() (ms int64, ok bool, err error) {
	for r.cursor != nil && r.at >= len(r.times) {
		block, err := r.cursor.Next()
		if err != nil || block == nil {
			return 0, false, err
		}
		r.times, r.at = block.Times, 0
	}
	if r.cursor == nil {
		return 0, false, nil
	}
	return r.times[r.at], true, nil
}

func (r *stampReader) close() {
	if r.cursor != nil {
		r.cursor.Close()
	}
}
