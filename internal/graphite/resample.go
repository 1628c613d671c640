package graphite

import (
	"math"
	"unsafe"

	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/retention"
	"varve/internal/store"
)

// A resampler computes points from downsampled buckets, in a window of a series.
//
// A bucket becomes a point of the stage that has its step. Points of coarser stages are
// aggregated from points of finer ones, as in Whisper. A bucket that is wider than the
// step of the requested stage becomes one point at its beginning.
type resampler struct {
	policy  retention.Policy
	stage   int   // the requested stage
	startMS int64 // of the window
	stepMS  int64 // of the finest stage
}

// A stagePoint is the value of a point of a stage.
type stagePoint struct {
	stage, at int
	value     float64
}

const (
	stagePointBytes = int64(unsafe.Sizeof(stagePoint{}))
	bucketBytes     = int64(unsafe.Sizeof(store.Bucket{}))
)

// direct sets the points of a window without samples in which each bucket is one point of
// the requested stage. Otherwise it returns false, and points must be overwritten. scratch
// has room for one value per bucket.
func (t resampler) direct(points []float64, buckets *store.Buckets, scratch []float64) bool {
	step := t.step(t.stage)
	for _, stepMS := range buckets.StepMS {
		if stepMS != step {
			return false
		}
	}
	expected := t.policy.Expected(step)
	factor := t.policy.Aggregation.XFilesFactor
	fill(points)
	values := t.policy.Aggregation.Method.OfAll(scratch[:0], &buckets.Aggregates, expected)
	at, startMS := -1, t.startMS-step
	for i, ms := range buckets.StartMS {
		if before := at; ms-startMS == step {
			at, startMS = at+1, ms
		} else if at = int((ms - t.startMS) / step); at == before {
			return false
		} else {
			startMS = t.startMS + int64(at)*step
		}
		if count := int64(buckets.Count[i]); retention.PartOf(count, int64(buckets.LastMS[i])-startMS < t.stepMS, expected) >= factor {
			points[at] = values[i]
		}
	}
	return true
}

// points appends the points of buckets to points, which is empty. values are the samples of
// the window, on the finest stage, nil if there are none. Samples within the time of a bucket
// arrived late, and are added to it.
func (t resampler) points(points []stagePoint, values []float64, buckets []store.Bucket) []stagePoint {
	var sum store.Bucket // of the last point
	for _, b := range buckets {
		// Narrower buckets within the last point are in other files, and not merged yet.
		if len(points) == 0 || b.StartMS-sum.StartMS >= sum.StepMS {
			stage := t.stageOf(b.StepMS)
			step := t.step(stage)
			at := int((b.StartMS - t.startMS) / step)
			points = append(points, stagePoint{stage: stage, at: at})
			sum = store.Bucket{StartMS: t.startMS + int64(at)*step, StepMS: step, Aggregate: t.samplesIn(values, int(int64(at)*step/t.stepMS), int(step/t.stepMS))}
		}
		sum.Merge(b.Aggregate)
		sum.StepMS = max(sum.StepMS, b.StepMS)
		points[len(points)-1].value = t.value(sum)
	}
	return points
}

// percentiles sets the points of the requested stage. A point with buckets is computed from
// all its original samples, because a percentile of percentiles is not a percentile. values
// and buckets are as in points.
func (t resampler) percentiles(points, values []float64, buckets []store.Bucket, nowMS int64) {
	step := t.step(t.stage)
	ratio := len(values) / len(points)
	var all quantile.Builder
	for k := range points {
		samples, startMS := values[k*ratio:(k+1)*ratio], t.startMS+int64(k)*step
		n := 0
		for n < len(buckets) && buckets[n].StartMS-startMS < step {
			n++
		}
		switch {
		case n > 0:
			sum := store.Bucket{StartMS: startMS, StepMS: step, Aggregate: t.samplesIn(values, k*ratio, ratio)}
			points[k] = t.value(merged(sum, samples, buckets[:n], &all))
			buckets = buckets[n:]
		case ratio == 1:
			points[k] = samples[0]
		default:
			points[k] = t.policy.Aggregation.Merge(samples, t.old(startMS, nowMS))
		}
	}
}

// bySamples reports whether the value of a point is computed from all its samples, not from
// finer points. Whisper computes averages of averages, and so does Varve for samples that are
// kept. Of downsampled samples only sums and counts remain. An average of averages computed
// from these would differ, as would a sum without the finer points that have too few samples.
// downsampled says whether some of the samples are downsampled.
func (t resampler) bySamples(downsampled bool) bool {
	switch {
	case t.stage == 0:
		return false
	case t.policy.Enforced:
		return true
	case t.policy.Aggregation.Method == retention.Average:
		return downsampled
	}
	return t.policy.Aggregation.Method == retention.Count
}

// whole sets the points of the requested stage, each computed from all its original
// samples. values and buckets are as in points. If rules are enforced, whole also decides
// which points exist, by the number of their samples: finer points are unknown once samples are
// downsampled, and a point must neither appear nor disappear then.
func (t resampler) whole(points, values []float64, buckets []store.Bucket, nowMS int64) {
	step := t.step(t.stage)
	ratio := int(step / t.stepMS)
	for k := range points {
		startMS := t.startMS + int64(k)*step
		sum := store.Bucket{StartMS: startMS, StepMS: step, Aggregate: t.samplesIn(values, k*ratio, ratio)}
		n := 0
		for n < len(buckets) && buckets[n].StartMS-startMS < step {
			sum.Merge(buckets[n].Aggregate)
			sum.StepMS = max(sum.StepMS, buckets[n].StepMS)
			n++
		}
		points[k] = math.NaN()
		expected, factor := t.policy.Expected(sum.StepMS), t.policy.Aggregation.XFilesFactor
		if sum.Count > 0 && (!t.policy.Enforced || float64(sum.Count)/expected >= factor || t.imported(t.within(values, k*ratio, ratio), buckets[:n], startMS, nowMS)/expected >= factor) {
			points[k] = t.policy.Aggregation.Method.Of(sum.Aggregate, expected)
		}
		buckets = buckets[n:]
	}
}

// imported returns how many samples a point has if points that were imported from a coarser
// archive count as all the samples of that archive's step. Such a point is the only sample of
// the step, and at its beginning. values are the samples of the point, and buckets its buckets.
func (t resampler) imported(values []float64, buckets []store.Bucket, startMS, nowMS int64) (samples float64) {
	at := 0
	next := func() (b store.Bucket) { // the next sample or bucket in order of time, an empty one at the end
		for at < len(values) && values[at] != values[at] {
			at++
		}
		sampleMS := startMS + int64(at)*t.stepMS
		if len(buckets) > 0 && (at == len(values) || buckets[0].StartMS <= sampleMS) {
			b, buckets = buckets[0], buckets[1:]
		} else if at < len(values) {
			b = store.Bucket{StartMS: sampleMS, StepMS: t.stepMS, Aggregate: model.Aggregate{Count: 1, LastMS: sampleMS}}
			at++
		}
		return b
	}
	before := int64(math.MinInt64) // time of the last sample before b
	for b, after := next(), next(); b.Count > 0; b, after = after, next() {
		part := float64(b.Count)
		for stage := t.stage; b.Count == 1 && stage > 0; stage-- {
			step := t.step(stage)
			begin := t.startMS + (b.StartMS-t.startMS)/step*step
			if b.LastMS-begin < t.stepMS && before < begin && (after.Count == 0 || after.StartMS-begin >= step) &&
				(b.StepMS >= step || begin < nowMS-t.policy.Rule.Stages[stage-1].Keep*1000) {
				part = t.policy.Expected(max(step, b.StepMS))
				break
			}
		}
		samples += part
		before = max(before, b.LastMS)
	}
	return samples
}

// old reports whether a time is older than the retention of the stage before the
// requested one.
func (t resampler) old(ms, nowMS int64) bool {
	return t.stage > 0 && ms < nowMS-t.policy.Rule.Stages[t.stage-1].Keep*1000
}

// merged returns the bucket of all samples of a point: of the downsampled samples in buckets,
// one of which may be wider than the point, and of the other samples, whose bucket is sum. It
// overwrites scratch.
func merged(sum store.Bucket, samples []float64, buckets []store.Bucket, scratch *quantile.Builder) store.Bucket {
	scratch.Reset()
	for _, v := range samples {
		scratch.Add(v)
	}
	complete := true
	for _, b := range buckets {
		scratch.AddSketch(b.Sketch)
		complete = complete && b.Sketch != ""
		b.Sketch = ""
		sum.Merge(b.Aggregate)
		sum.StepMS = max(sum.StepMS, b.StepMS)
	}
	if complete {
		sum.Sketch = scratch.Sketch()
	}
	return sum
}

// stageOf returns the finest stage whose step is at least that of a bucket, but none
// coarser than the requested stage.
func (t resampler) stageOf(stepMS int64) int {
	i := 0
	for i < t.stage && t.step(i) < stepMS {
		i++
	}
	return i
}

// step returns the step of a stage, in ms.
func (t resampler) step(stage int) int64 {
	if t.policy.Rule == nil {
		return t.stepMS
	}
	return t.policy.Rule.Stages[stage].Step * 1000
}

// samplesIn returns the bucket of n samples. Of their times, only the step of the finest stage is
// known. They count as being at the end of the step: if a bucket has a sample of the same step, the
// sample that is not downsampled arrived later. For the method absmin, both the least and the greatest
// value are the sample nearest to 0, which could not be told from the two.
func (t resampler) samplesIn(values []float64, from, n int) (sum model.Aggregate) {
	values = t.within(values, from, n)
	for i, v := range values {
		sum.Add(t.startMS+int64(from+i+1)*t.stepMS-1, v)
	}
	if sum.Count > 0 && t.policy.Aggregation.Method == retention.AbsoluteMin {
		nearest := (&retention.Aggregation{Method: retention.AbsoluteMin}).Merge(values, false)
		sum.Min, sum.Max = nearest, nearest
	}
	return sum
}

// within returns n values, none if there are no samples.
func (resampler) within(values []float64, from, n int) []float64 {
	if values == nil {
		return nil
	}
	return values[from:min(from+n, len(values))]
}

// value returns the value of a bucket, NaN if it has too few samples for the xFilesFactor.
func (t resampler) value(b store.Bucket) float64 {
	expected := t.policy.Expected(b.StepMS)
	if retention.PartOf(b.Count, b.LastMS-b.StartMS < t.stepMS, expected) < t.policy.Aggregation.XFilesFactor {
		return math.NaN()
	}
	return t.policy.Aggregation.Method.Of(b.Aggregate, expected)
}

// place sets the points of a stage.
func place(values []float64, points []stagePoint, stage int) {
	for _, p := range points {
		if p.stage == stage && p.at < len(values) {
			values[p.at] = p.value
		}
	}
}
