package agg

import (
	"math"

	"varve/internal/model"
)

// minSpec is the smallest value of a bucket, as a double. KairosDB begins with the largest double, so
// that the min of nothing but +Inf, the result of an earlier step, is that double.
func minSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "min", Doc: "Smallest value.", Properties: rangeProperties(),
		New: newFold(fold{needs: model.StatMin, value: doubleValue(func(t *tally) float64 { return min(t.min, math.MaxFloat64) })}),
	}
}
