package agg

import "varve/internal/model"

// sumSpec adds the values of a bucket as doubles.
func sumSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "sum", Doc: "Sum of the values.", Properties: rangeProperties(),
		New: newFold(fold{needs: model.StatSum, value: doubleValue(func(t *tally) float64 { return t.sum.Total() })}),
	}
}
