package agg

import "varve/internal/model"

// lastSpec keeps the last value of a bucket in its own type and, unless aligned,
// at its own time.
func lastSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "last", Doc: "Last value.", Properties: rangeProperties(),
		New: newFold(fold{any: true, ownStamp: true, needs: model.StatLast, value: func(t *tally) (model.Kind, uint64) {
			return t.last.kind, t.last.bits
		}}),
	}
}
