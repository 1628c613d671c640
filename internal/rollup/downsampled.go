package rollup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"varve/internal/downsample"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
)

// A retention policy may downsample the results of a roll-up. A recomputed result
// cannot overwrite one that was downsampled: the store has counted the old one in a
// wider bucket, and would count the new one as well. So the run computes all results of
// such a bucket and replaces the bucket with them. If it computes fewer results than
// the bucket has counted, because points have expired, were deleted or were downsampled
// themselves, the bucket stays as it is.

// A downsampler is a store that downsamples.
type downsampler interface {
	// WidestBucket returns the step of the widest bucket that may overlap r, 0 if none
	// does.
	WidestBucket(r model.TimeRange) int64

	// HoldFolds waits until no samples in r are being downsampled, and keeps the store
	// from downsampling them until release is called.
	HoldFolds(ctx context.Context, r model.TimeRange) (release func(), err error)

	// KeptFromMS returns the time before which points of a series are not kept, math.MinInt64 if
	// all are kept. AllKeptFromMS returns an upper bound of KeptFromMS for all series.
	KeptFromMS(ref store.Ref) int64
	AllKeptFromMS() int64
}

// The results of one group that are held in memory until the run knows whether they replace a
// bucket.
const (
	maxWhole      = 1 << 20
	maxWholeBytes = 16 << 20 // of their texts
)

// errTooManyResults means that the results of a group exceed maxWhole or maxWholeBytes.
var errTooManyResults = errors.New("too many results to replace the downsampled ones")

// errDownsampledMeanwhile means that results were downsampled while they were recomputed.
var errDownsampledMeanwhile = errors.New("results were downsampled while they were recomputed")

// A renewal tells an output how to store results of a range in which earlier results
// were downsampled.
type renewal struct {
	asked  model.TimeRange             // times of the results that the run has to compute
	around model.TimeRange             // times of all results that it computes: whole buckets around asked
	keep   bool                        // do not replace downsampled buckets
	note   func(context.Context) error // records that around has to be recomputed after a crash
}

// maxHolds bounds how often the held range is widened.
const maxHolds = 4

// held calls store with the renewal of a range, while it keeps the store from
// downsampling results in it: results that were downsampled after the renewal was
// determined, and before the new ones are stored, would count twice.
func (p *pass) held(ctx context.Context, from, until int64, store func(*renewal, downsample.Span) error) error {
	around := downsample.Span{FromMS: from, UntilMS: until}
	for range maxHolds {
		enough, err := p.holding(ctx, &around, from, until, store)
		if enough || err != nil {
			return err
		}
	}
	return errDownsampledMeanwhile
}

// holding holds the range around and calls store if that range covers the renewal;
// otherwise holding widens around.
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

// holdFolds keeps the store from downsampling results of some buckets until release is
// called.
func (p *pass) holdFolds(ctx context.Context, of downsample.Span) (release func(), err error) {
	downsampler, ok := store.As[downsampler](p.scheduler.store)
	if !ok {
		return func() {}, nil
	}
	release, err = downsampler.HoldFolds(ctx, p.stampsOf(of.FromMS, of.UntilMS))
	if err != nil {
		return nil, fmt.Errorf("wait until results in %s are downsampled: %w", p.rollup.saveAs, err)
	}
	return release, nil
}

// stampsOf returns the times that results of the buckets of [from, until) may have.
func (p *pass) stampsOf(from, until int64) model.TimeRange {
	if p.stampsEnd() {
		return model.TimeRange{StartMS: from + 1, EndMS: until}
	}
	return model.TimeRange{StartMS: from, EndMS: until - 1}
}

// renewal looks for downsampled results of the buckets of [from, until). around is the
// range whose results must be computed together; r is nil if no results were
// downsampled.
func (p *pass) renewal(ctx context.Context, from, until int64) (r *renewal, around downsample.Span, err error) {
	around = downsample.Span{FromMS: from, UntilMS: until}
	downsampler, ok := store.As[downsampler](p.scheduler.store)
	if !ok || p.output.bucketOf == nil {
		return nil, around, nil
	}
	asked := p.stampsOf(from, until)
	if downsampler.WidestBucket(asked) == 0 {
		return nil, around, nil
	}
	view, err := store.OpenCurrent(ctx, p.scheduler.store)
	if err != nil {
		return nil, around, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	own := store.Selection{
		Metric: p.rollup.saveAs, Matchers: model.Matchers([]model.Tag{{Name: savedFrom, Value: p.output.source}}),
		Range: bucketsOver(asked, downsampler.WidestBucket(asked)), AnyOrder: true, // the step is read after view was opened, so no bucket of view is wider
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

// keptFor is how long points must still be kept for results to be computed from them: longer than a
// query takes.
const keptFor = 10 * time.Minute

// coarse returns the times of results in [from, until) that can no longer be computed, for one of
// two reasons. A policy has downsampled their points into buckets of the store that extend across a
// bucket boundary of a range aggregator; the aggregator sees each of them as one point at its
// beginning. Or the result's bucket is complete, and a policy has removed the points at its
// beginning.
func (p *pass) coarse(ctx context.Context, from, until int64) (times []model.TimeRange, err error) {
	downsampler, ok := store.As[downsampler](p.scheduler.store)
	r := model.TimeRange{StartMS: from, EndMS: until - 1}
	if !ok || downsampler.WidestBucket(r) == 0 && !gone(downsampler.AllKeptFromMS(), from) {
		return nil, nil
	}
	view, err := store.OpenCurrent(ctx, p.scheduler.store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	current := p.grid.Start(p.scheduler.now().UnixMilli())
	points := store.Selection{
		Metric: p.source.metric, Matchers: p.request.Metrics[0].Matchers,
		Range: bucketsOver(r, downsampler.WidestBucket(r)), AnyOrder: true, // see renewal
	}
	var spans downsample.Spans
	for s, err := range view.Select(ctx, points) {
		if err != nil {
			return nil, err
		}
		if kept := downsampler.KeptFromMS(s.Ref); gone(kept, from) {
			until := min(p.grid.Next(kept+keptFor.Milliseconds()-1), until, current)
			spans, _ = spans.Add(downsample.Span{FromMS: from, UntilMS: until}, p.scheduler.config.BatchBuckets)
		}
		err := eachBucket(ctx, view, s, points.Range, func(b store.Bucket) {
			last := b.StartMS + b.StepMS - 1
			if last >= from && p.divides(b.StartMS, last) {
				spans, _ = spans.Add(downsample.Span{FromMS: p.grid.Start(b.StartMS), UntilMS: p.grid.Next(last)}, p.scheduler.config.BatchBuckets)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for _, s := range spans {
		times = append(times, p.stampsOf(s.FromMS, s.UntilMS))
	}
	return times, nil
}

// gone reports whether points at fromMS are no longer kept, or will not be for
// keptFor.
func gone(keptMS, fromMS int64) bool {
	return keptMS != math.MinInt64 && keptMS+keptFor.Milliseconds() > fromMS
}

// divides reports whether first and last are in different buckets of a range aggregator.
func (p *pass) divides(first, last int64) bool {
	return p.grid.Start(first) != p.grid.Start(last) ||
		slices.ContainsFunc(p.earlier, func(c cut) bool { return c.grid.Start(first) != c.grid.Start(last) })
}

// bucketsOver returns the range in which buckets of at most this step begin that may
// overlap r.
func bucketsOver(r model.TimeRange, step int64) model.TimeRange {
	if r.StartMS > math.MinInt64+step {
		r.StartMS -= step
	}
	return r
}

func eachBucket(ctx context.Context, view store.View, s store.Series, begin model.TimeRange, yield func(store.Bucket)) error {
	if s.Type != model.TypeLong && s.Type != model.TypeDouble {
		return nil // other types are never downsampled
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

// renew computes all results of the downsampled buckets that [from, until) overlaps. If
// there are too many, it computes only that range, and the downsampled buckets stay as
// they are.
func (p *pass) renew(ctx context.Context, r *renewal, from, until int64, around downsample.Span) error {
	key := p.source.key
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
	return p.scheduler.late.Done(ctx, p.task.id, map[string]downsample.Spans{key: {around}})
}

// A downsampledSpan is a range of time in which the store has downsampled results of a
// group.
type downsampledSpan struct {
	model.TimeRange
	stored   int64 // results that the store has counted in the range
	computed int64 // results that this run has computed in the range
}

// downsampledSpans returns the ranges in which results with these tags were downsampled, by
// time, and the series of these results.
func (o *output) downsampledSpans(ctx context.Context, tags model.Tags) (all []downsampledSpan, stored []model.Series, err error) {
	view, err := store.OpenCurrent(ctx, o.scheduler.store)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	r := o.renewal
	downsampler, _ := store.As[downsampler](o.scheduler.store)
	// Read after view was opened, so no bucket of view is wider, even if more results
	// were downsampled since renewal looked.
	step := downsampler.WidestBucket(r.around)
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
				all = append(all, downsampledSpan{TimeRange: model.TimeRange{StartMS: b.StartMS, EndMS: b.StartMS + b.StepMS - 1}})
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
func joined(all []downsampledSpan) []downsampledSpan {
	slices.SortFunc(all, func(a, b downsampledSpan) int { return cmp.Compare(a.StartMS, b.StartMS) })
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

// countStored counts the samples of a series in each span, downsampled or not.
func countStored(ctx context.Context, view store.View, s store.Series, all []downsampledSpan) error {
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
func spanAt(all []downsampledSpan, ms int64) *downsampledSpan {
	i := sort.Search(len(all), func(i int) bool { return all[i].EndMS >= ms })
	if i < len(all) && all[i].StartMS <= ms {
		return &all[i]
	}
	return nil
}

// addRenewed stores the points of a group. They replace each span for which the run has
// computed at least as many points as the store has counted.
func (o *output) addRenewed(ctx context.Context, g *agg.Group, tags model.Tags) error {
	all, stored, err := o.downsampledSpans(ctx, tags)
	if err != nil {
		return err
	}
	if len(all) == 0 || o.renewal.keep {
		return o.addOutside(ctx, g, all)
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
		if err := o.addPoint(ctx, group, p); err != nil {
			return err
		}
	}
	return nil
}

// replaces reports whether the computed results replace a span. A span that reaches beyond the
// computed range stays: some of its results were not computed.
func (o *output) replaces(w *downsampledSpan) bool {
	return o.renewal.covers(w) && w.computed >= w.stored
}

// covers reports whether the run computes all results of a span.
func (r *renewal) covers(w *downsampledSpan) bool {
	return w.StartMS >= r.around.StartMS && w.EndMS <= r.around.EndMS
}

// collect returns the points of a group, and counts those in each span.
func (o *output) collect(g *agg.Group, all []downsampledSpan) (points []agg.Point, err error) {
	var p agg.Point
	bytes := 0
	for {
		ok, err := g.Points.Next(&p)
		if err != nil || !ok {
			return points, err
		}
		if o.leavesOut(&p) {
			continue
		}
		w := spanAt(all, p.TimeMS)
		if r := o.renewal; w != nil && !r.covers(w) {
			if r.asked.Contains(p.TimeMS) {
				return nil, errDownsampledMeanwhile // the next run finds the bucket at its start
			}
			continue // outside the renewed buckets; another run computes this result
		}
		if w != nil {
			w.computed++
		}
		if bytes += len(p.Data); len(points) == maxWhole || bytes > maxWholeBytes {
			return nil, errTooManyResults
		}
		p.Data = append([]byte(nil), p.Data...)
		points = append(points, p)
	}
}

// makeRoom deletes the spans that are replaced. It first records that they have to be
// recomputed after a crash.
func (o *output) makeRoom(ctx context.Context, all []downsampledSpan, stored []model.Series) error {
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
		return fmt.Errorf("record that results in %s are replaced: %w", o.metric, err)
	}
	if err := o.scheduler.store.Delete(ctx, deletions...); err != nil {
		return fmt.Errorf("delete downsampled results in %s: %w", o.metric, err)
	}
	return nil
}
