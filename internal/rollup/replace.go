package rollup

import (
	"context"
	"errors"
	"math"
	"slices"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// Longs and doubles of one name are two series, and a sum turns from one to the
// other when the first fraction arrives. What is here keeps a bucket from having
// two results.

// A destination is a tag set under which a flush stores longs or doubles.
type destination struct {
	tags   model.Tags
	groups []*outputGroup // several, if they differ in more than tags
	has    [2]bool        // by number.index: series that are stored, or will be
}

// A number is model.Long or model.Double.
type number model.Kind

var numbers = [2]number{number(model.Long), number(model.Double)}

func (n number) index() int {
	if n == number(model.Long) {
		return 0
	}
	return 1
}

func (t *destination) series(metric string, n number) model.Series {
	return model.Series{Metric: metric, Tags: t.tags, Type: model.TypeOf(model.Kind(n))}
}

// isNumber reports whether a point has a type that another result of its bucket may
// have too.
func isNumber(p *query.Point) bool { return p.Kind == model.Long || p.Kind == model.Double }

// mixed returns the destinations of the flush that have both longs and doubles, with
// those that are stored already. Whole numbers that go there become doubles as far
// as they are exact, so that most of its results are of one type.
func (o *output) mixed(ctx context.Context) ([]*destination, error) {
	destinations := o.destinations()
	if err := o.lookUp(ctx, destinations); err != nil {
		return nil, err
	}
	destinations = slices.DeleteFunc(destinations, func(t *destination) bool { return !t.has[0] || !t.has[1] })
	for _, t := range destinations {
		for _, g := range t.groups {
			g.toDoubles()
		}
	}
	return destinations, nil
}

// destinations returns the destinations of the flush and the types of its points.
func (o *output) destinations() []*destination {
	var all []*destination
	by := map[model.Tags]*destination{}
	for _, g := range o.groups {
		if !slices.ContainsFunc(g.points, func(p query.Point) bool { return isNumber(&p) }) {
			continue
		}
		tags, err := model.NewTags(g.names.Tags...)
		if err != nil {
			continue // refused when it is stored
		}
		t := by[tags]
		if t == nil {
			t = &destination{tags: tags}
			by[tags], all = t, append(all, t)
		}
		t.groups = append(t.groups, g)
		for i := range g.points {
			if p := &g.points[i]; isNumber(p) {
				t.has[number(p.Kind).index()] = true
			}
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

// lookUp adds to the destinations the types that the store has. A store that several
// processes work on does not know without a look what the others have written.
func (o *output) lookUp(ctx context.Context, destinations []*destination) (err error) {
	if o.scheduler.shared == nil {
		for _, t := range destinations {
			for _, n := range numbers {
				if !t.has[n.index()] {
					_, t.has[n.index()] = o.scheduler.store.Lookup(t.series(o.metric, n).AppendKey(nil))
				}
			}
		}
		return nil
	}
	if len(destinations) == 0 {
		return nil
	}
	view, err := o.scheduler.store.View(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	stored, err := o.existing(ctx, view, destinations)
	if err != nil {
		return err
	}
	for _, t := range destinations {
		for _, n := range numbers {
			if _, ok := stored[t.series(o.metric, n)]; ok {
				t.has[n.index()] = true
			}
		}
	}
	return nil
}

// existing returns what the store has of the destinations around the times of the flush.
func (o *output) existing(ctx context.Context, view store.View, destinations []*destination) (map[model.Series]store.Series, error) {
	stored := map[model.Series]store.Series{}
	for _, matchers := range o.selections(destinations) {
		series, err := view.Select(ctx, store.Selection{Metric: o.metric, Matchers: matchers, Range: timesOf(destinations), AnyOrder: true})
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			stored[s.Series] = s
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

// timesOf is the time from the first to the last point of destinations.
func timesOf(destinations []*destination) model.TimeRange {
	r := model.TimeRange{StartMS: math.MaxInt64, EndMS: math.MinInt64}
	for _, t := range destinations {
		for _, g := range t.groups {
			for i := range g.points {
				r.StartMS, r.EndMS = min(r.StartMS, g.points[i].TimeMS), max(r.EndMS, g.points[i].TimeMS)
			}
		}
	}
	return r
}

// replace deletes the results of the other type at the times of points that were
// stored.
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

// outdated finds out what is to be deleted. There is at most one deletion for each
// point of the flush.
func (o *output) outdated(ctx context.Context, destinations []*destination) (deletions []store.Deletion, err error) {
	view, err := o.scheduler.store.View(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	stored, err := o.existing(ctx, view, destinations)
	if err != nil {
		return nil, err
	}
	for _, t := range destinations {
		long, some := stored[t.series(o.metric, numbers[0])]
		double, others := stored[t.series(o.metric, numbers[1])]
		if !some || !others {
			continue
		}
		r := timesOf([]*destination{t})
		both := [2]*stampReader{newStampReader(ctx, view, long, r), newStampReader(ctx, view, double, r)}
		deletions, err = t.outdated(deletions, both, o.metric)
		both[0].cursor.Close()
		both[1].cursor.Close()
		if err != nil {
			return nil, err
		}
	}
	return deletions, nil
}

// outdated appends what is to be deleted of a destination: stretches of time in which a
// series has only results that were replaced. A result of either type that was not
// replaced ends a stretch, since one row may hold both: see [store.DeletionOf].
func (t *destination) outdated(deletions []store.Deletion, both [2]*stampReader, metric string) ([]store.Deletion, error) {
	now := t.kinds()
	var stretch [2]*model.TimeRange
	end := func(n number) {
		if r := stretch[n.index()]; r != nil {
			deletions = append(deletions, store.DeletionOf(t.series(metric, n), *r))
			stretch[n.index()] = nil
		}
	}
	for {
		n, ms, ok, err := first(both)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		kind, computed := now[ms]
		for _, n := range numbers {
			if !computed || kind == n {
				end(n)
			}
		}
		switch r := stretch[n.index()]; {
		case !computed || kind == n:
		case r == nil:
			stretch[n.index()] = &model.TimeRange{StartMS: ms, EndMS: ms}
		default:
			r.EndMS = ms
		}
	}
	for _, n := range numbers {
		end(n)
	}
	return deletions, nil
}

// kinds returns what was stored at which time. Of two groups the later one counts,
// as in the store.
func (t *destination) kinds() map[int64]number {
	kinds := map[int64]number{}
	for _, g := range t.groups {
		for i := range g.points {
			if p := &g.points[i]; isNumber(p) && !g.refused[p.TimeMS] {
				kinds[p.TimeMS] = number(p.Kind)
			}
		}
	}
	return kinds
}

// first takes the earlier of the next samples of longs and doubles.
func first(both [2]*stampReader) (n number, ms int64, ok bool, err error) {
	var heads [2]int64
	var there [2]bool
	for i, r := range both {
		if heads[i], there[i], err = r.peek(); err != nil {
			return 0, 0, false, err
		}
	}
	i := 0
	if !there[0] || there[1] && heads[1] < heads[0] {
		i = 1
	}
	both[i].at++
	return numbers[i], heads[i], there[i], nil
}

// A stampReader reads the times of a series.
type stampReader struct {
	cursor store.Cursor
	times  []int64
	at     int
}

func newStampReader(ctx context.Context, view store.View, s store.Series, r model.TimeRange) *stampReader {
	return &stampReader{cursor: view.Read(ctx, s, store.ReadOptions{Range: r})}
}

// peek returns the next time without taking it.
func (r *stampReader) peek() (ms int64, ok bool, err error) {
	for r.at >= len(r.times) {
		block, err := r.cursor.Next()
		if err != nil || block == nil {
			return 0, false, err
		}
		r.times, r.at = block.Times, 0
	}
	return r.times[r.at], true, nil
}
