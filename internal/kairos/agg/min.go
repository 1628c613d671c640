package agg

import "varve/internal/model"

// minSpec is the smallest value of a bucket, as a double.
func minSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "min", Doc: "Smallest value.", Properties: rangeProperties(),
		New: newFold(fold{needs: model.StatMin, value: doubleValue(func(t *tally) float64 { return t.min })}),
	}
}
