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
// the requested stage. If that is not so, it returns false, and points must be overwritten.
// scratch has room for one value per bucket.
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
		if count := int64(buckets.Count[i]); partOf(count, int64(buckets.LastMS[i])-startMS < t.stepMS, expected) >= factor {
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

// bySamples reports whether the value of a point is computed from all its samples, and
// finer points only decide whether the point exists. Whisper computes averages of averages,
// and so does Varve for samples that are kept. Of downsampled ones only sums and counts
// remain, so that an average of averages would change. downsampled says whether that is the
// case for some of the samples.
func (t resampler) bySamples(downsampled bool) bool {
	switch {
	case t.stage == 0:
		return false
	case t.policy.Aggregation.Method == retention.Average:
		return t.policy.Enforced || downsampled
	}
	return t.policy.Aggregation.Method == retention.Count
}

// whole sets the points of the requested stage, each computed from all its original
// samples, regardless of xFilesFactor. values and buckets are as in points.
func (t resampler) whole(points, values []float64, buckets []store.Bucket) {
	step := t.step(t.stage)
	ratio := int(step / t.stepMS)
	for k := range points {
		startMS := t.startMS + int64(k)*step
		sum, stepMS := t.samplesIn(values, k*ratio, ratio), step
		for len(buckets) > 0 && buckets[0].StartMS-startMS < step {
			sum.Merge(buckets[0].Aggregate)
			stepMS = max(stepMS, buckets[0].StepMS)
			buckets = buckets[1:]
		}
		points[k] = math.NaN()
		if sum.Count > 0 {
			points[k] = t.policy.Aggregation.Method.Of(sum, t.policy.Expected(stepMS))
		}
	}
}

// old reports whether a time is older than the retention of the stage before the
// requested one.
func (t resampler) old(ms, nowMS int64) bool {
	return t.stage > 0 && ms < nowMS-t.policy.Rule.Stages[t.stage-1].Keep*1000
}

// merged returns the bucket of all samples of a point: the downsampled ones, of which one
// bucket may be wider than the point, and the others, of which sum is the bucket. It overwrites
// scratch.
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

// samplesIn returns the bucket of n samples. Of their times only the step of the finest stage is known.
// They are counted at its end: of two samples of one step, one that is not downsampled arrived later.
func (t resampler) samplesIn(values []float64, from, n int) (sum model.Aggregate) {
	if values == nil {
		return sum
	}
	for i, v := range values[from:min(from+n, len(values))] {
		sum.Add(t.startMS+int64(from+i+1)*t.stepMS-1, v)
	}
	return sum
}

// value returns the value of a bucket, NaN if it has too few samples for the xFilesFactor.
func (t resampler) value(b store.Bucket) float64 {
	expected := t.policy.Expected(b.StepMS)
	if partOf(b.Count, b.LastMS-b.StartMS < t.stepMS, expected) < t.policy.Aggregation.XFilesFactor {
		return math.NaN()
	}
	return t.policy.Aggregation.Method.Of(b.Aggregate, expected)
}

// partOf returns the fraction of a bucket's expected samples that exist. A single one in the
// first step of the finest stage counts as all: it is an imported point of a coarser archive.
// Aggregation.Merge applies the same rule to samples that are not downsampled.
func partOf(count int64, atBegin bool, expected float64) float64 {
	if count == 1 && atBegin {
		return 1
	}
	return float64(count) / expected
}

// place sets the points of a stage.
func place(values []float64, points []stagePoint, stage int) {
	for _, p := range points {
		if p.stage == stage && p.at < len(values) {
			values[p.at] = p.value
		}
	}
}
