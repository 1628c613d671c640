package agg

import (
	"math"

	"varve/internal/model"
)

// folds lists the aggregators whose result for a bucket is a fold of its samples.
func folds() []AggregatorSpec {
	of := func(name, doc string, f fold) AggregatorSpec {
		return AggregatorSpec{Name: name, Doc: doc, Properties: rangeProperties, New: func(a Args) (Step, error) {
			return &foldStep{Range: rangeOf(a), fold: f}, nil
		}}
	}
	double := func(v func(t *tally) float64) func(t *tally) (model.Kind, uint64) {
		return func(t *tally) (model.Kind, uint64) { return model.Double, math.Float64bits(v(t)) }
	}
	return []AggregatorSpec{
		// avg is the only aggregator of numbers that skips nulls, as in KairosDB.
		of("avg", "Mean of the values.", fold{needs: model.StatSum, skipsNulls: true, value: double(func(t *tally) float64 { return t.sum.Mean(t.count) })}),
		of("count", "Number of points.", fold{any: true, number: true, value: func(t *tally) (model.Kind, uint64) { return model.Long, uint64(t.count) }}),
		of("first", "First value.", fold{any: true, needs: model.StatFirst, value: func(t *tally) (model.Kind, uint64) { return t.first.kind, t.first.bits }}),
		of("last", "Last value.", fold{any: true, ownStamp: true, needs: model.StatLast, value: func(t *tally) (model.Kind, uint64) { return t.last.kind, t.last.bits }}),
		// KairosDB begins max with the smallest double and min with the largest, so that the max of
		// nothing but -Inf, the result of an earlier step, is that double.
		of("max", "Largest value.", fold{needs: model.StatMax, value: double(func(t *tally) float64 { return max(t.max, -math.MaxFloat64) })}),
		of("min", "Smallest value.", fold{needs: model.StatMin, value: double(func(t *tally) float64 { return min(t.min, math.MaxFloat64) })}),
		of("sum", "Sum of the values.", fold{needs: model.StatSum, value: double(func(t *tally) float64 { return t.sum.Total() })}),
	}
}
