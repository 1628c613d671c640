package graphite

import (
	"math"
	"unsafe"

	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/retention"
	"varve/internal/store"
)

// A thin makes points of buckets, in a window of a series that is read.
//
// A bucket is a point of the stage that has its step. Coarser stages are made of it
// then, as they are of finer points, which is Whisper's way. A bucket that is coarser
// than the stage that was asked for is one point at its beginning.
type thin struct {
	policy  retention.Policy
	stage   int   // that was asked for
	startMS int64 // of the window
	stepMS  int64 // of the finest stage
}

// A thinPoint is the value of a point of a stage.
type thinPoint struct {
	stage, at int
	value     float64
}

const (
	thinPointBytes = int64(unsafe.Sizeof(thinPoint{}))
	bucketBytes    = int64(unsafe.Sizeof(store.Bucket{}))
)

// direct fills in the points of a window without samples whose buckets are points of the
// stage that was asked for, one each. It reports false, and fills in what is to be
// overwritten, if there are others. scratch has room for as many values as there are buckets.
func (t thin) direct(points []float64, buckets *store.Buckets, scratch []float64) bool {
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
// the window, on the finest stage, nil if there are none: those in the time of a bucket,
// which came late, count with it.
func (t thin) points(points []thinPoint, values []float64, buckets []store.Bucket) []thinPoint {
	var sum store.Bucket // of the last point
	for _, b := range buckets {
		// Narrower ones within it are of other files, and not folded yet.
		if len(points) == 0 || b.StartMS-sum.StartMS >= sum.StepMS {
			stage := t.stageOf(b.StepMS)
			step := t.step(stage)
			at := int((b.StartMS - t.startMS) / step)
			points = append(points, thinPoint{stage: stage, at: at})
			sum = store.Bucket{StartMS: t.startMS + int64(at)*step, StepMS: step, Aggregate: samplesIn(values, int(int64(at)*step/t.stepMS), int(step/t.stepMS))}
		}
		sum.Merge(b.Aggregate)
		sum.StepMS = max(sum.StepMS, b.StepMS)
		points[len(points)-1].value = t.value(sum)
	}
	return points
}

// percentiles fills in the points of the stage that was asked for, each from all samples
// that there were, because a percentile of percentiles is not a percentile. values and
// buckets are as for points.
func (t thin) percentiles(points, values []float64, buckets []store.Bucket, nowMS int64) {
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
			points[k] = t.value(merged(samples, startMS, step, buckets[:n], &all))
			buckets = buckets[n:]
		case ratio == 1:
			points[k] = samples[0]
		default:
			points[k] = t.policy.Aggregation.Merge(samples, t.old(startMS, nowMS))
		}
	}
}

// bySamples reports whether the value of a point is made of all its samples, and of finer
// points only whether there is one. Whisper computes averages of averages, and so does
// Varve for samples that stay. Once samples are thinned out, only their sums and counts
// are left, and an average of averages would change. thinned says that some of them are.
func (t thin) bySamples(thinned bool) bool {
	switch {
	case t.stage == 0:
		return false
	case t.policy.Aggregation.Method == retention.Average:
		return t.policy.Enforced || thinned
	}
	return t.policy.Aggregation.Method == retention.Count
}

// whole fills in the points of the stage that was asked for, each from all samples that
// there were, however few. values and buckets are as for points.
func (t thin) whole(points, values []float64, buckets []store.Bucket) {
	step := t.step(t.stage)
	ratio := int(step / t.stepMS)
	for k := range points {
		startMS := t.startMS + int64(k)*step
		sum, stepMS := samplesIn(values, k*ratio, ratio), step
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

// old reports whether a time is before what the stage keeps that is finer than the one
// that was asked for.
func (t thin) old(ms, nowMS int64) bool {
	return t.stage > 0 && ms < nowMS-t.policy.Rule.Stages[t.stage-1].Keep*1000
}

// merged is the bucket of all samples of a point: those that were thinned out, of which
// one bucket may be wider, and those that were not. scratch may be anything.
func merged(samples []float64, startMS, stepMS int64, buckets []store.Bucket, scratch *quantile.Builder) store.Bucket {
	sum := store.Bucket{StartMS: startMS, StepMS: stepMS, Aggregate: samplesIn(samples, 0, len(samples))}
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

// stageOf returns the finest stage whose points are as wide as a bucket, or the one that
// was asked for.
func (t thin) stageOf(stepMS int64) int {
	i := 0
	for i < t.stage && t.step(i) < stepMS {
		i++
	}
	return i
}

// step is that of a stage, in ms.
func (t thin) step(stage int) int64 {
	if t.policy.Rule == nil {
		return t.stepMS
	}
	return t.policy.Rule.Stages[stage].Step * 1000
}

func samplesIn(values []float64, from, n int) (sum model.Aggregate) {
	if values == nil {
		return sum
	}
	for _, v := range values[from:min(from+n, len(values))] {
		sum.Add(math.MinInt64, v) // its time is not known; the last one of a bucket is later
	}
	return sum
}

// value is that of a bucket, if enough of its samples were there.
func (t thin) value(b store.Bucket) float64 {
	expected := t.policy.Expected(b.StepMS)
	if partOf(b.Count, b.LastMS-b.StartMS < t.stepMS, expected) < t.policy.Aggregation.XFilesFactor {
		return math.NaN()
	}
	return t.policy.Aggregation.Method.Of(b.Aggregate, expected)
}

// partOf is the part of a bucket's samples that were there. A single one at the very
// beginning, which is the first slot of the finest stage, counts as all: it is the point of a
// coarser archive that was imported. Before samples are thinned out, Aggregation.Merge says the same of them.
func partOf(count int64, atBegin bool, expected float64) float64 {
	if count == 1 && atBegin {
		return 1
	}
	return float64(count) / expected
}

// place sets the points of a stage.
func place(values []float64, points []thinPoint, stage int) {
	for _, p := range points {
		if p.stage == stage && p.at < len(values) {
			values[p.at] = p.value
		}
	}
}
