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

// A bucket has one result, but an earlier run may have stored another one for it: at
// another time, if results have the time of the bucket's first point (see pass.cut), or
// of another type. Longs and doubles of one name are two series, and a sum becomes a
// double when the first fraction arrives. The functions here delete the earlier result.

// placeOf returns the times at which a result at ms replaces earlier results: all of
// its bucket, or ms alone if a bucket may have several results.
func (o *output) placeOf(ms int64) model.TimeRange {
	if o.bucketOf == nil {
		return model.TimeRange{StartMS: ms, EndMS: ms}
	}
	return o.bucketOf(ms)
}

// storedTime returns the time at which the store keeps a result at ms. That time may be earlier, and in
// the previous bucket: see [store.TimeCutter].
func (o *output) storedTime(ms int64) int64 {
	if c, ok := store.As[store.TimeCutter](o.scheduler.store); ok {
		return c.StoredTime(o.metric, ms)
	}
	return ms
}

// A destination is a set of series under one tag set whose points can replace each
// other: the long and the double series, or the series of one other type.
type destination struct {
	destinationKey
	metric string
	types  []model.Type   // of the series, in the order of has
	has    []bool         // whether the series is stored, or will be
	found  bool           // one of the series was stored before the flush
	groups []*outputGroup // several, if they differ in more than tags
}

type destinationKey struct {
	tags model.Tags
	typ  model.Type // empty: long and double
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

// typeOf returns the index in t.types of the type of a group's point.
func (t *destination) typeOf(g *outputGroup, p *agg.Point) (int, bool) {
	i := slices.Index(t.types, g.typeOf(p.Kind))
	return i, i >= 0
}

// mixed reports whether there are both longs and doubles.
func (t *destination) mixed() bool { return len(t.has) == 2 && t.has[0] && t.has[1] }

// replaced returns the destinations of the flush that may have earlier results to
// replace. In a destination with both longs and doubles, it turns all longs that a
// double represents exactly into doubles, so that most results have one type.
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

// destinations returns the destinations of the flush, each with the types of its
// points.
func (o *output) destinations() []*destination {
	var all []*destination
	by := map[destinationKey]*destination{}
	for _, g := range o.groups {
		tags, err := model.NewTags(g.names.Tags...)
		if err != nil {
			continue // the pipeline refuses it
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

// exactLong: a double represents all integers from -exactLong to exactLong.
const exactLong = 1 << 53

func (g *outputGroup) toDoubles() {
	for i := range g.points {
		p := &g.points[i]
		if v := int64(p.Bits); p.Kind == model.Long && v >= -exactLong && v <= exactLong {
			p.Kind, p.Bits = model.Double, math.Float64bits(float64(v))
		}
	}
}

// lookUp adds the series that the store has to the destinations. If several processes
// share the store, only a selection finds the series that the others have written.
func (o *output) lookUp(ctx context.Context, destinations []*destination) (err error) {
	if len(destinations) == 0 {
		return nil
	}
	known := func(s model.Series) bool {
		_, ok := o.scheduler.store.Lookup(s.AppendKey(nil))
		return ok
	}
	if o.scheduler.shared != nil {
		view, err := store.OpenCurrent(ctx, o.scheduler.store)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, view.Close()) }()
		stored, err := o.existing(ctx, view, destinations)
		if err != nil {
			return err
		}
		known = func(s model.Series) bool {
			_, ok := stored[s]
			return ok
		}
	}
	for _, t := range destinations {
		for i := range t.types {
			if known(t.series(i)) {
				t.has[i], t.found = true, true
			}
		}
	}
	return nil
}

// existing returns the stored series of the destinations that may have points in the
// buckets of the flush. A selection may yield many other series; they are not kept.
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

// selections divides the destinations into selections. In memory each destination has
// its own. Elsewhere a selection is a round trip, so a single one, by the tags that all
// destinations have in common, finds them all.
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

// timesOf is the range from the first to the last bucket of the destinations.
func (o *output) timesOf(destinations []*destination) model.TimeRange {
	r := model.TimeRange{StartMS: math.MaxInt64, EndMS: math.MinInt64}
	for _, t := range destinations {
		for _, g := range t.groups {
			for i := range g.points {
				r.StartMS, r.EndMS = min(r.StartMS, g.points[i].TimeMS), max(r.EndMS, g.points[i].TimeMS)
			}
		}
	}
	return model.TimeRange{StartMS: o.storedTime(o.placeOf(r.StartMS).StartMS), EndMS: o.placeOf(r.EndMS).EndMS}
}

// replace deletes the earlier results that the stored points replace.
func (o *output) replace(ctx context.Context, destinations []*destination) error {
	if len(destinations) == 0 {
		return nil
	}
	deletions, err := o.outdated(ctx, destinations)
	if err != nil || len(deletions) == 0 {
		return err
	}
	if o.owned != nil && !o.owned() {
		return errElsewhere // another node may have stored results among those to delete
	}
	return o.scheduler.store.Delete(ctx, deletions...)
}

// outdated returns the deletions of outdated results. There are at most two for each
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
		var readers []*stampReader
		for i := range t.types {
			if s, ok := stored[t.series(i)]; ok {
				readers = append(readers, &stampReader{typ: i, cursor: view.Read(ctx, s, store.ReadOptions{Range: within})})
			}
		}
		deletions, err = t.outdated(deletions, readers, o.placeOf, o.storedTime)
		for _, r := range readers {
			r.cursor.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	return deletions, nil
}

// inOrderOf sorts destinations in the order in which the store selected their series,
// since it reads them fastest in that order.
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

// outdated appends the deletions for a destination: ranges of time in which a series
// has only results that were replaced. A result of either type whose bucket was not
// computed ends a range, since one row may hold longs and doubles: see
// [store.DeletionOf]. A result that may belong to the next bucket also ends the range if
// that bucket was not computed.
func (t *destination) outdated(deletions []store.Deletion, stored []*stampReader, placeOf func(int64) model.TimeRange, storedTime func(int64) int64) ([]store.Deletion, error) {
	now := t.results(placeOf)
	stretches := make([]*model.TimeRange, len(t.types))
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
		bucket := placeOf(ms)
		result, computed := now[bucket.StartMS]
		current := computed && (result == place{ms, n} || result == place{result.ms, n} && storedTime(result.ms) == ms)
		if bucket.EndMS < math.MaxInt64 && bucket.EndMS > bucket.StartMS && storedTime(bucket.EndMS+1) == ms {
			next, too := now[placeOf(bucket.EndMS+1).StartMS] // the result may belong to the next bucket
			current = current || too && next.typ == n && storedTime(next.ms) == ms
			computed = computed && too
		}
		switch {
		case current:
			end(n)
			continue
		case !computed:
			for i := range stretches {
				end(i)
			}
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

// A place is the time and the type of a result; typ is an index into destination.types.
type place struct {
	ms  int64
	typ int
}

// results returns the stored results by the start of their bucket. If two groups have a
// result for a bucket, the later group wins, as in the store.
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

// first consumes the earliest of the readers' next times, and returns it with the type of
// its series.
func first(stored []*stampReader) (typ int, ms int64, ok bool, err error) {
	var earliest *stampReader
	for _, r := range stored {
		more, err := r.fill()
		if err != nil {
			return 0, 0, false, err
		}
		if more && (earliest == nil || r.times[0] < earliest.times[0]) {
			earliest = r
		}
	}
	if earliest == nil {
		return 0, 0, false, nil
	}
	ms, earliest.times = earliest.times[0], earliest.times[1:]
	return earliest.typ, ms, true, nil
}

// A stampReader reads the times of a series.
type stampReader struct {
	typ    int // index into destination.types
	cursor store.Cursor
	times  []int64 // read and not consumed
}

// fill makes sure that times has the next one, unless there is none.
func (r *stampReader) fill() (more bool, err error) {
	for len(r.times) == 0 {
		block, err := r.cursor.Next()
		if err != nil || block == nil {
			return false, err
		}
		r.times = block.Times
	}
	return true, nil
}
