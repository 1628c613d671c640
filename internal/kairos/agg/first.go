package agg

import "varve/internal/model"

// firstSpec keeps the first value of a bucket in its own type.
func firstSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "first", Doc: "First value.", Properties: rangeProperties(),
		New: newFold(fold{any: true, needs: model.StatFirst, value: func(t *tally) (model.Kind, uint64) {
			return t.first.kind, t.first.bits
		}}),
	}
}
