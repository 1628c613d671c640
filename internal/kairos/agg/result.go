package agg

import (
	"slices"
	"time"

	"varve/internal/model"
	"varve/internal/query"
)

// A Group is one result of a metric query.
type Group struct {
	Type   string
	Labels []Label           // one per group-by that is not ignored, in KairosDB's order
	Tags   []query.TagValues // of the series that have samples
	Points Stream            // valid until the next call on the Result
}

// A Result yields the groups of one metric, in order. Groups without samples are
// skipped; a group whose samples the steps have consumed is not.
type Result struct {
	run      *Run
	query    *MetricQuery
	by       *TagGroupBy
	plans    []*groupPlan // not yet loaded
	lease    query.Lease  // memory of the plans
	ready    []*loaded
	current  *loaded
	before   int64 // samples of the run before this metric
	backward bool  // steps run on ascending points, and the result is reversed
	splits   []Splitter
	grouped  map[string]bool // tags that any tag group-by names
	saves    bool
	parts    []*part     // of the current group, not yet returned
	part     query.Lease // memory of the steps of the part that was returned last
	any      bool        // a group was returned
	batch    int         // series to read at once
	ordered  bool        // groups are read one by one and in order of time, for an incomplete answer

	cutBy *foldStep // the step whose buckets are in cut
	cut   *buckets

	accepts  string // the group type of accepted
	accepted []Step

	ofGroup Env         // of the current group or part
	folded  tallyStream // of the current group
}

func newResult(r *Run, q *MetricQuery) *Result {
	res := &Result{run: r, query: q, before: r.Samples(), saves: q.Saves(), batch: firstSeries, lease: r.Lease(), part: r.Lease()}
	for _, g := range q.GroupBy {
		switch by := g.(type) {
		case *TagGroupBy:
			if res.grouped == nil {
				res.grouped = map[string]bool{}
			}
			for _, tag := range by.Tags {
				res.grouped[tag] = true
			}
			if res.by == nil { // only the first one counts, as in KairosDB
				res.by = by
			}
		case Splitter:
			res.splits = append(res.splits, by)
		}
	}
	res.backward = q.Descending && hasRangeStep(q.Steps)
	return res
}

// plan selects the series and sorts them into groups.
func (r *Result) plan() error {
	series, err := r.run.Collect(r.query.selection(r.run.query.Range), &r.lease, nil)
	if err != nil {
		return err
	}
	defer since(&r.run.trace.plan, time.Now())
	r.plans, err = planGroups(r.run.Session, &series, r.by, &r.lease)
	return err
}

// hasRangeStep reports whether a step cuts time into buckets. In a descending stream of
// KairosDB, the bucket of the newest point swallows all others. Here the points are
// chosen newest first, aggregated ascending, and the result is reversed.
func hasRangeStep(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { _, ok := s.(interface{ Bucketing() *Range }); return ok })
}

// SampleSize is the number of samples read so far, after the limit per series. It is
// final once Next has returned nil.
func (r *Result) SampleSize() int64 { return r.run.Samples() - r.before }

// Next returns the next group, nil at the end.
func (r *Result) Next() (*Group, error) {
	defer since(&r.run.trace.next, time.Now())
	g, err := r.next()
	return g, r.run.Cause(err)
}

func (r *Result) next() (*Group, error) {
	for {
		if err := r.run.Tick(1 + len(r.query.Steps)); err != nil {
			return nil, err
		}
		if len(r.parts) > 0 {
			return r.nextPart(), nil
		}
		if err := r.leave(); err != nil {
			return nil, err
		}
		if len(r.ready) == 0 && len(r.plans) == 0 {
			return r.withoutData(), nil
		}
		if len(r.ready) == 0 {
			if err := r.load(); err != nil {
				return nil, err
			}
		}
		if g, err := r.enter(); g != nil || err != nil {
			return g, err
		}
	}
}

// leave releases the current group.
func (r *Result) leave() error {
	r.part.Release()
	if r.current == nil {
		return nil
	}
	err := r.current.drain()
	r.current.release()
	r.current = nil
	return err
}

// enter makes the next loaded group the current one, unless it has no samples. It
// returns the group, or nil if there is none or it has been split into parts.
func (r *Result) enter() (*Group, error) {
	g := r.ready[0]
	r.ready = r.ready[1:]
	if g.empty() {
		g.release()
		return nil, nil
	}
	r.current, r.any = g, true
	return r.build(g)
}

// withoutData ends the groups of a query without samples. `gaps` finds empty buckets
// even then, in a result without a type.
func (r *Result) withoutData() *Group {
	if r.any || len(r.splits) > 0 || !slices.ContainsFunc(r.query.Steps, isGaps) {
		return nil
	}
	r.any = true
	r.current = &loaded{lease: r.run.Lease()}
	env := r.env()
	env.lease = &r.current.lease
	points := r.chain((&pointBuffer{}).forward(), r.query.Steps, env)
	return &Group{Points: r.run.traced(r.guard(points))}
}

func isGaps(s Step) bool { _, ok := s.(*gapsStep); return ok }

// Close releases the memory and cursors of the result.
func (r *Result) Close() {
	if r.current != nil {
		r.ready = append(r.ready, r.current)
	}
	for _, g := range r.ready {
		g.release()
	}
	r.current, r.ready, r.plans, r.parts = nil, nil, nil, nil
	r.part.Release()
	r.lease.Release()
}

// env describes no group yet. It is valid until the next call.
func (r *Result) env() *Env {
	r.ofGroup = Env{
		Range: r.run.query.Range, Zone: r.run.query.Zone,
		NowMS: r.run.Started().UnixMilli(), Metric: r.query.Metric,
		run: r.run, grouped: r.grouped,
	}
	return &r.ofGroup
}

// build makes the group of a loaded group, or divides it into parts.
func (r *Result) build(g *loaded) (*Group, error) {
	env := r.groupEnv(g)
	if g.fold != nil {
		tallies, err := g.tallies(r.run.Context())
		if err != nil {
			return nil, err
		}
		r.folded = tallyStream{g.fold, tallies}
		return r.group(g, env, r.finish(&r.folded, g.steps, env)), nil
	}
	if len(r.splits) == 0 {
		return r.group(g, env, r.chain(r.merged(g), g.steps, env)), nil
	}
	var err error
	r.parts, err = splitStream(r.merged(g), r.splits, env)
	return nil, err
}

func (r *Result) groupEnv(g *loaded) *Env {
	env := r.env()
	env.lease, env.Tags = &g.lease, g.tags
	if r.by != nil {
		env.Labels = []Label{{By: r.by, Tags: g.plan.values}}
	}
	return env
}

// nextPart makes a group of the next part. The streams of a part are made only now:
// there may be millions of parts, with hundreds of steps each.
func (r *Result) nextPart() *Group {
	p, g := r.parts[0], r.current
	r.parts[0] = nil // frees its points once it has been read
	r.parts = r.parts[1:]
	r.part.Release()
	env := r.groupEnv(g)
	env.Labels, env.lease = append(p.labels, env.Labels...), &r.part
	return r.group(g, env, r.chain(p.points.forward(), g.steps, env))
}

func (r *Result) group(g *loaded, env *Env, points Stream) *Group {
	group := &Group{
		Type: g.plan.groupType, Labels: env.Labels, Tags: env.Tags,
		Points: r.run.traced(r.guard(points)),
	}
	if r.query.WithoutTags {
		group.Tags = nil
	}
	return group
}

// merged is the stream of a group's samples, in the order read.
func (r *Result) merged(g *loaded) Stream {
	live := make([]*source, 0, len(g.opened))
	for _, s := range g.opened {
		if s != nil {
			live = append(live, s)
		}
	}
	if len(live) == 1 {
		return r.guard(&loneStream{source: live[0]})
	}
	return r.guard(newMerger(live, r.readDescending()))
}

// chain limits the samples of a group and runs the steps.
func (r *Result) chain(s Stream, steps []Step, env *Env) Stream {
	if r.query.Limit > 0 {
		s = &limited{s, r.query.Limit}
	}
	if r.backward && r.readDescending() {
		s = &reversed{in: s, lease: env.lease}
	}
	return r.finish(s, steps, env)
}

// finish runs the steps and reverses the result if needed.
func (r *Result) finish(s Stream, steps []Step, env *Env) Stream {
	s = r.guard(s)
	for i, step := range steps {
		env.first = i == 0
		s = step.Apply(env, s)
		if maker, ok := step.(*gapsStep); ok {
			s = &produced{guarded: guarded{in: s, session: r.run.Session, cost: r.cost()}, run: r.run, least: maker.least(env)}
		}
	}
	if r.backward {
		s = &reversed{in: r.guard(s), lease: env.lease, part: r.run.query.Partial}
	}
	return s
}

// guarded checks the context from time to time, since a stream may yield many points
// without reading a block, and returns the cause of an end. It follows every stream
// that yields points without reading blocks, since the next step may consume all of
// them without yielding one: the merge, folded and buffered points, and `gaps`. It also
// precedes streams that buffer, and is the last stream.
type guarded struct {
	in      Stream
	session *query.Session
	cost    int // of a point, see query.Session.Tick
}

// cost is the most work for a point: it may pass through all group-bys and steps.
func (r *Result) cost() int { return 1 + len(r.splits) + len(r.query.Steps) }

func (r *Result) guard(in Stream) Stream {
	switch s := in.(type) {
	case *guarded, *guardedBlocks:
		return in
	case Blocks:
		return &guardedBlocks{guarded{in, r.run.Session, r.cost()}, s}
	}
	return &guarded{in, r.run.Session, r.cost()}
}

// guardedBlocks is guarded for a stream with Blocks; the store checks the context for
// each block.
type guardedBlocks struct {
	guarded
	blocks Blocks
}

func (s *guardedBlocks) NextBlock() (*model.Columns, model.Kind, error) {
	c, kind, err := s.blocks.NextBlock()
	return c, kind, s.session.Cause(err)
}

func (s *guarded) Next(p *Point) (bool, error) {
	if err := s.session.Tick(s.cost); err != nil {
		return false, err
	}
	ok, err := s.in.Next(p)
	return ok, s.session.Cause(err)
}

// produced counts the points of a step that adds points of its own, such as gaps,
// against query.max_samples, as if they had been read.
type produced struct {
	guarded
	run   *Run
	least int64 // lower bound of the points to come, 0 if unknown
}

func (s *produced) Next(p *Point) (bool, error) {
	if s.least > 0 { // refused now rather than after as many points as the limit allows
		if err := s.run.mayProduce(s.least); err != nil {
			return false, err
		}
		s.least = 0
	}
	s.run.produced++
	if err := s.run.mayProduce(s.run.produced); err != nil {
		return false, err
	}
	return s.guarded.Next(p)
}

// Split reports whether a group-by other than by tag splits the groups. If so, KairosDB
// answers with an empty list when there is no data.
func (r *Result) Split() bool { return len(r.splits) > 0 }
