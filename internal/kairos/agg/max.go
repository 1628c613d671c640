package agg

import (
	"math"

	"varve/internal/model"
)

// maxSpec is the largest value of a bucket, as a double. KairosDB begins with the smallest double, so
// that the max of nothing but -Inf, the result of an earlier step, is that double.
func maxSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "max", Doc: "Largest value.", Properties: rangeProperties(),
		New: newFold(fold{needs: model.StatMax, value: doubleValue(func(t *tally) float64 { return max(t.max, -math.MaxFloat64) })}),
	}
}
