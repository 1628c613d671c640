package agg

import "varve/internal/model"

// countSpec counts the points of a bucket, whatever their type; after it the group type
// is number.
func countSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "count", Doc: "Number of points.", Properties: rangeProperties(),
		New: newFold(fold{any: true, number: true, value: func(t *tally) (model.Kind, uint64) {
			return model.Long, uint64(t.count)
		}}),
	}
}
