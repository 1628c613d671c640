package agg

import (
	"cmp"
	"context"
	"slices"
	"time"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// Groups are read in batches, in parallel. Many groups of few series, or of series that
// are scattered in the files, are faster in one batch: series are read by ascending
// Ref, so a page of a file is scanned once per batch. Only loaded groups that are not
// yet handed out take memory, so each batch is larger than the previous one as long as
// that is not much.
const (
	firstSeries = 512
	mostSeries  = 64 << 10
	littleHeld  = 16 << 20 // bytes: the next batch may be larger
	muchHeld    = 64 << 20 // bytes: the next batch is smaller
)

// A loaded group has its samples folded, or its sources opened.
type loaded struct {
	plan    *groupPlan
	steps   []Step // those that accept the group, without a folded first one
	fold    *foldStep
	wholes  bool                 // the first step requests Point.Whole
	final   func(ms int64) int64 // see store.ReadOptions
	buckets *buckets             // of fold
	lease   query.Lease
	live    []bool // series that have samples
	tags    []query.TagValues
	tables  []*table // by slice of the readings; nil if a slice has no series of the group
	opened  []*source
}

func (g *loaded) empty() bool { return !slices.Contains(g.live, true) }

func (g *loaded) drain() error {
	for _, s := range g.opened {
		if s != nil {
			if err := s.drain(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *loaded) release() {
	for _, s := range g.opened {
		if s != nil {
			s.cursor.Close()
		}
	}
	for _, t := range g.tables {
		if t != nil {
			t.release()
		}
	}
	g.opened, g.tables = nil, nil
	g.lease.Release()
}

// liveSeries are the series with samples.
func (g *loaded) liveSeries() []store.Series {
	if !slices.Contains(g.live, false) {
		return g.plan.series
	}
	live := make([]store.Series, 0, len(g.live))
	for i, s := range g.plan.series {
		if g.live[i] {
			live = append(live, s)
		}
	}
	return live
}

// A reading is one series to be read, the order-th of its group.
type reading struct {
	ref   store.Ref
	order int32
	group *loaded
}

// load reads the next groups. A fold reads one series after the other, so an error
// leaves no bucket complete. If an incomplete answer is wanted, load then reads these
// groups again in order of time, so that all buckets before the error are complete.
// Their samples count once.
func (r *Result) load() error {
	defer since(&r.run.trace.load, time.Now())
	before := r.run.Samples()
	err := r.loadNext()
	if err == nil || !r.run.query.Partial || r.ordered || r.run.Context().Err() != nil || store.IsBusy(err) {
		return err
	}
	plans := make([]*groupPlan, 0, len(r.ready)+len(r.plans))
	for _, g := range r.ready {
		plans = append(plans, g.plan)
		g.release()
	}
	r.plans, r.ready = append(plans, r.plans...), nil
	r.ordered, r.batch = true, 1
	r.run.Reread(before)
	return r.loadNext()
}

func (r *Result) loadNext() error {
	var readings []reading
	for len(readings) < r.batch && len(r.plans) > 0 {
		plan := r.plans[0]
		if err := r.run.Tick(1 + len(plan.series)/query.SortWork); err != nil {
			return err
		}
		r.plans = r.plans[1:]
		g, err := r.newLoaded(plan)
		if err != nil {
			return err
		}
		r.ready = append(r.ready, g)
		readings = slices.Grow(readings, len(plan.series))
		for i := range plan.series {
			readings = append(readings, reading{plan.series[i].Ref, int32(i), g})
		}
	}
	if err := query.SortFunc(r.run.Session, readings, func(a, b reading) int { return cmp.Compare(a.ref, b.ref) }); err != nil {
		return r.run.Cause(err)
	}
	if err := r.read(readings); err != nil {
		return err
	}
	r.adapt()
	if r.query.WithoutTags && !r.saves {
		return nil
	}
	return r.run.Parallel(len(r.ready), "gather the tags of series", func(i int) (done bool, err error) {
		defer since(&r.run.trace.tasks, time.Now())
		r.ready[i].tags, err = r.run.TagValuesOf(r.ready[i].liveSeries(), &r.ready[i].lease)
		return true, err
	})
}

// read divides readings into slices that are read in parallel. The division depends
// only on the configuration, so that sums are the same each time.
func (r *Result) read(readings []reading) error {
	n, workers := len(readings), r.run.Workers()
	size := max(16, (n+4*workers-1)/(4*workers))
	count := (n + size - 1) / size
	r.placeTables(count)
	done := make([]int, count) // readings of each slice
	return r.run.Parallel(count, "read series", func(i int) (bool, error) {
		defer since(&r.run.trace.tasks, time.Now())
		f := folders.Get().(*folder)
		defer f.release()
		slice := readings[i*size : min(n, (i+1)*size)]
		f.result, f.slice, f.most, f.Session, f.Into = r, i, len(slice), r.run.Session, f
		for done[i] < len(slice) {
			if err := f.read(slice[done[i]]); err != nil {
				return false, err
			}
			if done[i]++; r.run.Due() {
				break
			}
		}
		return done[i] == len(slice), f.Count()
	})
}

// placeTables gives each folded group a place for the table of each slice.
func (r *Result) placeTables(slices int) {
	folded := 0
	for _, g := range r.ready {
		if g.fold != nil {
			folded++
		}
	}
	all := make([]*table, folded*slices)
	for _, g := range r.ready {
		if g.fold != nil {
			g.tables, all = all[:slices:slices], all[slices:]
		}
	}
}

// adapt chooses how many series the next batch of groups may have.
func (r *Result) adapt() {
	if r.ordered {
		return
	}
	var held int64
	for _, g := range r.ready {
		held += g.lease.Held()
	}
	switch {
	case held < littleHeld:
		r.batch = min(4*r.batch, mostSeries)
	case held > muchHeld:
		r.batch = max(r.batch/4, firstSeries)
	}
}

func (r *Result) newLoaded(plan *groupPlan) (*loaded, error) {
	g := &loaded{plan: plan, live: make([]bool, len(plan.series)), lease: r.run.Lease()}
	g.steps = r.stepsOf(plan.groupType)
	if len(g.steps) > 0 {
		if f, ok := g.steps[0].(*foldStep); ok && r.folds(f, plan) {
			g.fold, g.buckets, g.steps = f, r.bucketsOf(f), g.steps[1:]
		}
	}
	if g.fold == nil {
		g.opened = make([]*source, len(plan.series))
		g.wholes, g.final = r.wholes(g.steps)
	}
	if g.fold == nil || g.fold.fold.needs&(model.StatFirst|model.StatLast) != 0 {
		return g, r.run.Cause(plan.sort(r.run.Session))
	}
	return g, nil
}

// stepsOf returns the steps that accept a group type. Groups come by type.
func (r *Result) stepsOf(groupType string) []Step {
	if r.accepts == groupType {
		return r.accepted
	}
	r.accepts, r.accepted = groupType, nil
	for _, s := range r.query.Steps {
		if s.Accepts(groupType) {
			r.accepted = append(r.accepted, s)
			groupType = s.Yields(groupType)
		}
	}
	return r.accepted
}

// folds reports whether a group can be folded series by series: all points count, the
// values fit a tally, and buckets depend only on the time, as they do from the origin
// on.
func (r *Result) folds(f *foldStep, plan *groupPlan) bool {
	if r.query.Limit > 0 || len(r.splits) > 0 || f.Sampling.Value <= 0 || r.run.engine.merging || r.ordered {
		return false
	}
	if r.run.query.Range.StartMS < r.bucketsOf(f).originMS {
		return false
	}
	return f.fold.needs == 0 || !slices.ContainsFunc(plan.series, func(s store.Series) bool { return !s.Type.Kind().Fixed() })
}

// wholes reports whether the first of some steps requests Point.Whole, and within which spans. Groups
// by value cannot use buckets: a bucket would be in the group of its own value, but its samples may
// belong to other groups.
func (r *Result) wholes(steps []Step) (ok bool, final func(ms int64) int64) {
	if len(steps) == 0 {
		return false, nil
	}
	switch step := steps[0].(type) {
	case *collectStep:
		return step.wholes && len(r.splits) == 0, nil
	case *foldStep:
		return r.wholesOf(step)
	}
	return false, nil
}

// wholesOf is wholes for a fold. The fold counts all samples of a bucket of the store that lies within one
// bucket of the fold and within one group by time.
func (r *Result) wholesOf(f *foldStep) (ok bool, final func(ms int64) int64) {
	if f.Sampling.Value <= 0 || f.fold.needs&model.StatFirst != 0 {
		return false, nil
	}
	var groups []*TimeGroupBy
	for _, by := range r.splits {
		one, ok := by.(*TimeGroupBy)
		if !ok {
			return false, nil
		}
		groups = append(groups, one)
	}
	own, startMS := r.bucketsOf(f), r.run.query.Range.StartMS
	return true, func(ms int64) int64 {
		last := own.find(ms).finalMS
		for _, g := range groups {
			last = min(last, g.final(startMS, ms))
		}
		return last
	}
}

// bucketsOf returns the buckets of a step, which are the same for all groups.
func (r *Result) bucketsOf(f *foldStep) *buckets {
	if r.cutBy != f {
		r.cutBy, r.cut = f, f.buckets(r.env())
	}
	return r.cut
}

// readDescending: a result in descending order is read ascending and reversed, unless a
// limit has to choose the newest points first, or splitters have to meet groups in that
// order.
func (r *Result) readDescending() bool {
	return r.query.Descending && (!r.backward || r.query.Limit > 0 || len(r.splits) > 0)
}

// tallies joins the tables of a folded group.
func (g *loaded) tallies(ctx context.Context) ([]tally, error) {
	var all []tally
	for _, t := range g.tables {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case t == nil:
		case all == nil:
			all = t.tallies
		default:
			all = mergeTallies(make([]tally, 0, max(len(all), len(t.tallies))), all, t.tallies)
		}
	}
	return all, nil
}
