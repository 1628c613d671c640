package agg

import "varve/internal/model"

// maxSpec is the largest value of a bucket, as a double.
func maxSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "max", Doc: "Largest value.", Properties: rangeProperties(),
		New: newFold(fold{needs: model.StatMax, value: doubleValue(func(t *tally) float64 { return t.max })}),
	}
}
