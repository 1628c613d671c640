package retention

import (
	"math"
	"slices"

	"varve/internal/model"
)

// Merge aggregates the points of a bucket; NaN is no point. The result is NaN if there
// is no point, or if the fraction of points is below XFilesFactor.
//
// With old, the bucket is older than what the finer stage keeps. Then a single point at
// the beginning of the bucket is enough, whatever XFilesFactor is: it was imported from
// a coarser archive, and Whisper has no finer points of that time either.
func (a *Aggregation) Merge(points []float64, old bool) float64 {
	known, sum := 0, 0.0
	result := math.NaN()
	for _, v := range points {
		if v != v {
			continue
		}
		known++
		sum += v
		if known == 1 || a.replaces(result, v) {
			result = v
		}
	}
	whole := old && known == 1 && points[0] == points[0]
	if known == 0 || !whole && float64(known)/float64(len(points)) < a.XFilesFactor {
		return math.NaN()
	}
	switch a.Method {
	case Average:
		return sum / float64(known)
	case AverageZero:
		return sum / float64(len(points))
	case Sum:
		return sum
	case Count:
		return float64(known)
	}
	if percent, ok := a.Method.Percentile(); ok {
		return percentile(points, known, percent)
	}
	return result
}

// PartOf returns the fraction of a bucket's expected samples that exist. If the only sample is
// in the first step of the finest stage (atBegin), it counts as all samples: it is an imported
// point of a coarser archive. Merge applies the same rule to samples that are not downsampled.
func PartOf(count int64, atBegin bool, expected float64) float64 {
	if count == 1 && atBegin {
		return 1
	}
	return float64(count) / expected
}

// percentile is a percentile of points, of which known are not NaN.
func percentile(points []float64, known int, percent float64) float64 {
	sorted := make([]float64, 0, known)
	for _, v := range points {
		if v == v {
			sorted = append(sorted, v)
		}
	}
	slices.Sort(sorted)
	return sorted[model.Rank(percent, int64(known))-1]
}

// replaces reports whether a later value replaces the result so far.
func (a *Aggregation) replaces(result, v float64) bool {
	switch a.Method {
	case Max:
		return v > result
	case Min:
		return v < result
	case AbsoluteMax:
		return math.Abs(v) > math.Abs(result)
	case AbsoluteMin:
		return math.Abs(v) < math.Abs(result)
	}
	return true // last
}
