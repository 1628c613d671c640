package agg

import "varve/internal/model"

// avgSpec is the arithmetic mean of a bucket. Alone among the aggregators of
// numbers it leaves nulls out, as in KairosDB.
func avgSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "avg", Doc: "Mean of the values.", Properties: rangeProperties(),
		New: newFold(fold{needs: model.StatSum, skipsNulls: true, value: doubleValue(func(t *tally) float64 {
			return t.sum.Mean(t.count)
		})}),
	}
}
