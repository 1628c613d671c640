package rollup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"varve/internal/downsample"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
)

// Retention policies may thin out the results of a roll-up. A result that is computed again then
// cannot overwrite the earlier one: the store has counted that in a wider bucket, and would
// count the new one as well. So the run computes all results of such a bucket and replaces the
// bucket with them. If it computes fewer results than the bucket has counted, because points
// have expired, were deleted or were thinned out themselves, the bucket stays as it is.

// A thinner is a store that thins out samples.
type thinner interface {
	// WidestBucket returns the step of the widest bucket that may cover a part of r, 0 if none does.
	WidestBucket(r model.TimeRange) int64

	// HoldFolds waits until no samples in r are being thinned out, and keeps the store from
	// that until release is called.
	HoldFolds(ctx context.Context, r model.TimeRange) (release func(), err error)
}

// maxWhole bounds the results of one group that are held in memory until the run knows
// whether they replace a bucket.
const maxWhole = 1 << 20

// errTooManyResults means that a bucket has more results than are held in memory.
var errTooManyResults = errors.New("too many results to replace the downsampled ones")

// errThinnedMeanwhile says that results were downsampled while they were recomputed.
var errThinnedMeanwhile = errors.New("results were downsampled while they were recomputed")

// A renewal tells an output how to store results of a range that has thinned-out ones.
type renewal struct {
	asked  model.TimeRange             // of the results that are wanted
	around model.TimeRange             // of all results that are computed: whole buckets around asked
	keep   bool                        // buckets stay as they are
	note   func(context.Context) error // stores a note that around is to be computed again
}

// maxHolds bounds how often the range to be held is found to be too narrow.
const maxHolds = 4

// held calls store with what renewal says, while no results in the range are thinned out: those
// that are thinned out after the look, and before the new ones are stored, would count twice.
func (p *pass) held(ctx context.Context, from, until int64, store func(*renewal, downsample.Span) error) error {
	around := downsample.Span{FromMS: from, UntilMS: until}
	for range maxHolds {
		enough, err := p.holding(ctx, &around, from, until, store)
		if enough || err != nil {
			return err
		}
	}
	return errThinnedMeanwhile
}

// holding calls store while around is held, if that is enough; else it makes around wider.
func (p *pass) holding(ctx context.Context, around *downsample.Span, from, until int64, store func(*renewal, downsample.Span) error) (enough bool, err error) {
	release, err := p.holdFolds(ctx, *around)
	if err != nil {
		return false, err
	}
	defer release()
	r, wanted, err := p.renewal(ctx, from, until)
	if err != nil {
		return false, fmt.Errorf("look for downsampled results in %s: %w", p.rollup.saveAs, err)
	}
	if wanted.FromMS < around.FromMS || wanted.UntilMS > around.UntilMS {
		around.FromMS, around.UntilMS = min(around.FromMS, wanted.FromMS), max(around.UntilMS, wanted.UntilMS)
		return false, nil
	}
	return true, store(r, wanted)
}

// holdFolds keeps the store from thinning out results of some buckets until release is called.
func (p *pass) holdFolds(ctx context.Context, of downsample.Span) (release func(), err error) {
	thinner, ok := store.As[thinner](p.scheduler.store)
	if !ok {
		return func() {}, nil
	}
	release, err = thinner.HoldFolds(ctx, p.stampsOf(of.FromMS, of.UntilMS))
	if err != nil {
		return nil, fmt.Errorf("wait until results in %s are downsampled: %w", p.rollup.saveAs, err)
	}
	return release, nil
}

// stampsOf returns the times that results of buckets may have.
func (p *pass) stampsOf(from, until int64) model.TimeRange {
	if p.stampsEnd() {
		return model.TimeRange{StartMS: from + 1, EndMS: until}
	}
	return model.TimeRange{StartMS: from, EndMS: until - 1}
}

// renewal looks for thinned-out results in the range of some of the task's buckets. It returns
// nil if there are none, otherwise the range whose results must be computed together.
func (p *pass) renewal(ctx context.Context, from, until int64) (r *renewal, around downsample.Span, err error) {
	around = downsample.Span{FromMS: from, UntilMS: until}
	thinner, ok := store.As[thinner](p.scheduler.store)
	if !ok || p.output.bucketOf == nil {
		return nil, around, nil
	}
	asked := p.stampsOf(from, until)
	if thinner.WidestBucket(asked) == 0 {
		return nil, around, nil
	}
	view, err := store.OpenCurrent(ctx, p.scheduler.store)
	if err != nil {
		return nil, around, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	own := store.Selection{
		Metric: p.rollup.saveAs, Matchers: model.Matchers([]model.Tag{{Name: savedFrom, Value: p.output.source}}),
		Range: bucketsOver(asked, thinner.WidestBucket(asked)), AnyOrder: true, // asked after view was opened: no bucket of it is wider
	}
	found := false
	for s, err := range view.Select(ctx, own) {
		if err != nil {
			return nil, around, err
		}
		err := eachBucket(ctx, view, s, own.Range, func(b store.Bucket) {
			if end := b.StartMS + b.StepMS; end > asked.StartMS && b.StartMS <= asked.EndMS {
				found = true
				around.FromMS = min(around.FromMS, p.grid.Start(b.StartMS-1))
				around.UntilMS = max(around.UntilMS, p.grid.Next(end-1))
			}
		})
		if err != nil {
			return nil, around, err
		}
	}
	if !found {
		return nil, around, nil
	}
	return &renewal{asked: asked, around: p.stampsOf(around.FromMS, around.UntilMS)}, around, nil
}

// bucketsOver returns the range in which the buckets begin that may overlap r.
func bucketsOver(r model.TimeRange, step int64) model.TimeRange {
	if r.StartMS > math.MinInt64+step {
		r.StartMS -= step
	}
	return r
}

func eachBucket(ctx context.Context, view store.View, s store.Series, begin model.TimeRange, yield func(store.Bucket)) error {
	if s.Type != model.TypeLong && s.Type != model.TypeDouble {
		return nil // others are never thinned out
	}
	cursor := view.Read(ctx, s, store.ReadOptions{Range: begin, Buckets: store.BucketsOnly})
	defer cursor.Close()
	for {
		block, err := cursor.Next()
		if err != nil || block == nil || block.Buckets == nil {
			return err
		}
		for i := range block.Buckets.Len() {
			yield(block.Buckets.At(i))
		}
	}
}

// renew computes all results of the thinned-out buckets that the range overlaps. If these are
// too many, it computes only the range, and the buckets stay as they are.
func (p *pass) renew(ctx context.Context, r *renewal, from, until int64, around downsample.Span) error {
	key := p.rollup.keys[p.index]
	noted := false
	r.note = func(ctx context.Context) error {
		if noted {
			return nil
		}
		noted = true
		return p.scheduler.late.Hold(ctx, p.task.id, key, around)
	}
	p.output.renewal = r
	defer func() { p.output.renewal = nil }()
	err := errTooManyResults
	if !p.single {
		err = p.compute(ctx, around.FromMS, around.UntilMS)
	}
	switch {
	case errors.Is(err, errTooManyResults) || err != nil && p.batches().TooMuch(err):
		r.keep = true
		return p.compute(ctx, from, until)
	case err != nil:
		return err
	}
	p.renewed = around
	if !noted {
		return nil
	}
	return p.scheduler.late.Done(ctx, p.task.id, key, around)
}

// A thinnedSpan is a range of time in which the store has thinned out results of a group.
type thinnedSpan struct {
	model.TimeRange
	stored   int64 // results that the store has counted in it
	computed int64 // results that this run has computed of it
}

// thinnedSpans returns the thinned-out ranges of the results with these tags, by time, and the
// series of these results.
func (o *output) thinnedSpans(ctx context.Context, tags model.Tags) (all []thinnedSpan, stored []model.Series, err error) {
	view, err := store.OpenCurrent(ctx, o.scheduler.store)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	r := o.renewal
	thinner, _ := store.As[thinner](o.scheduler.store)
	// Asked after view was opened: no bucket of it is wider, even if results were thinned out
	// further since renewal looked.
	step := thinner.WidestBucket(r.around)
	own := store.Selection{Metric: o.metric, Matchers: model.Matchers(tags.Slice()), Range: bucketsOver(r.around, step)}
	var series []store.Series
	for s, err := range view.Select(ctx, own) {
		if err != nil {
			return nil, nil, err
		}
		if s.Tags != tags {
			continue
		}
		series, stored = append(series, s), append(stored, s.Series)
		err := eachBucket(ctx, view, s, own.Range, func(b store.Bucket) {
			if b.StartMS+b.StepMS > r.around.StartMS {
				all = append(all, thinnedSpan{TimeRange: model.TimeRange{StartMS: b.StartMS, EndMS: b.StartMS + b.StepMS - 1}})
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if len(all) == 0 {
		return nil, nil, nil
	}
	all = joined(all)
	for _, s := range series {
		if err := countStored(ctx, view, s, all); err != nil {
			return nil, nil, err
		}
	}
	return all, stored, nil
}

// joined sorts spans by time and merges those that overlap.
func joined(all []thinnedSpan) []thinnedSpan {
	slices.SortFunc(all, func(a, b thinnedSpan) int { return cmp.Compare(a.StartMS, b.StartMS) })
	apart := all[:1]
	for _, w := range all[1:] {
		if last := &apart[len(apart)-1]; w.StartMS <= last.EndMS {
			last.EndMS = max(last.EndMS, w.EndMS)
			continue
		}
		apart = append(apart, w)
	}
	return apart
}

// countStored counts the samples of a series in each span, thinned out or not.
func countStored(ctx context.Context, view store.View, s store.Series, all []thinnedSpan) error {
	reach := model.TimeRange{StartMS: all[0].StartMS, EndMS: all[len(all)-1].EndMS}
	err := eachBucket(ctx, view, s, reach, func(b store.Bucket) {
		if w := spanAt(all, b.StartMS); w != nil {
			w.stored += b.Count
		}
	})
	if err != nil {
		return err
	}
	cursor := view.Read(ctx, s, store.ReadOptions{Range: reach, Buckets: store.WithoutBuckets})
	defer cursor.Close()
	for {
		block, err := cursor.Next()
		if err != nil || block == nil {
			return err
		}
		for _, ms := range block.Times {
			if w := spanAt(all, ms); w != nil {
				w.stored++
			}
		}
	}
}

// spanAt returns the span that contains a time, nil if none does.
func spanAt(all []thinnedSpan, ms int64) *thinnedSpan {
	i := sort.Search(len(all), func(i int) bool { return all[i].EndMS >= ms })
	if i < len(all) && all[i].StartMS <= ms {
		return &all[i]
	}
	return nil
}

// addRenewed stores the points of a group. They replace each span for which there are at
// least as many points as the store has counted in it.
func (o *output) addRenewed(ctx context.Context, g *agg.Group, tags model.Tags) error {
	all, stored, err := o.thinnedSpans(ctx, tags)
	if err != nil {
		return err
	}
	points, err := o.collect(g, all)
	if err != nil {
		return err
	}
	if err := o.makeRoom(ctx, all, stored); err != nil {
		return err
	}
	group := o.newGroup(g)
	o.hold(group)
	for _, p := range points {
		if w := spanAt(all, p.TimeMS); w != nil && !o.replaces(w) {
			o.scheduler.metrics.kept.Inc()
			continue
		}
		group.points = append(group.points, p)
		if o.held++; o.full() {
			if err := o.flush(ctx); err != nil {
				return err
			}
			group.points = group.points[:0]
			o.hold(group)
		}
	}
	return nil
}

// replaces reports whether the computed results replace a span.
func (o *output) replaces(w *thinnedSpan) bool { return !o.renewal.keep && w.computed >= w.stored }

// collect returns the points of a group, and counts those in each span.
func (o *output) collect(g *agg.Group, all []thinnedSpan) (points []agg.Point, err error) {
	var p agg.Point
	for {
		ok, err := g.Points.Next(&p)
		if err != nil || !ok {
			return points, err
		}
		if o.leavesOut(&p) {
			continue
		}
		w := spanAt(all, p.TimeMS)
		if w != nil {
			w.computed++
		}
		if r := o.renewal; w != nil && !r.keep && r.asked.Contains(p.TimeMS) && (w.StartMS < r.around.StartMS || w.EndMS > r.around.EndMS) {
			return nil, errThinnedMeanwhile // the next run sees it from the beginning
		}
		if len(points) == maxWhole {
			return nil, errTooManyResults
		}
		p.Data = append([]byte(nil), p.Data...)
		points = append(points, p)
	}
}

// makeRoom deletes the spans that are replaced. It stores a note first, so that after a crash
// they are computed again.
func (o *output) makeRoom(ctx context.Context, all []thinnedSpan, stored []model.Series) error {
	var deletions []store.Deletion
	for i := range all {
		if !o.replaces(&all[i]) {
			continue
		}
		for _, s := range stored {
			deletions = append(deletions, store.DeletionOf(s, all[i].TimeRange))
		}
	}
	if len(deletions) == 0 {
		return nil
	}
	if err := o.renewal.note(ctx); err != nil {
		return fmt.Errorf("note that results in %s are replaced: %w", o.metric, err)
	}
	if err := o.scheduler.store.Delete(ctx, deletions...); err != nil {
		return fmt.Errorf("delete downsampled results in %s: %w", o.metric, err)
	}
	return nil
}
