package retention

import (
	"math"
	"slices"

	"varve/internal/model"
)

// Merge makes one point of those in a bucket, of which NaN is none. The result is NaN
// if there is no point, or less than the part of XFilesFactor.
//
// With old the bucket lies before what the finer stage keeps. There a single point at
// its very beginning is enough, whatever XFilesFactor says: it is the point of a coarser
// archive that was imported, and Whisper has no finer ones of that time either.
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

// percentile is the percentile of points of which so many are known.
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

// replaces reports whether a later value takes the place of the result so far.
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
