package agg

import "varve/internal/model"

// avgSpec is the arithmetic mean of a bucket. It is the only aggregator of numbers that
// skips nulls, as in KairosDB.
func avgSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "avg", Doc: "Mean of the values.", Properties: rangeProperties(),
		New: newFold(fold{needs: model.StatSum, skipsNulls: true, value: doubleValue(func(t *tally) float64 {
			return t.sum.Mean(t.count)
		})}),
	}
}
