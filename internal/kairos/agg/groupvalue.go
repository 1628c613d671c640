package agg

import (
	"math"

	"varve/internal/model"
)

// valueSpec groups points by their value.
func valueSpec() GroupBySpec {
	return GroupBySpec{
		Name: "value", Doc: "Points with values in the same range.",
		Properties: []Property{{Name: "range_size", Kind: IntProperty, Doc: "size of a range, at least 1"}},
		New: func(a Args) (GroupBy, error) {
			size := a.Long("range_size", 0)
			if size < 1 {
				return nil, &ArgumentError{[]string{"rangeSize must be greater than or equal to 1"}}
			}
			return &ValueGroupBy{Size: size}, nil
		},
	}
}

// A ValueGroupBy numbers points by value / Size, truncated towards zero. Points that
// are not numbers are in group -1.
type ValueGroupBy struct{ Size int64 }

func (*ValueGroupBy) groupBy() {}

// number follows KairosDB: of longs the low 32 bits of the quotient, doubles are
// cut to 32 bits first.
func (g *ValueGroupBy) number(_ *Env, p *Point) (int64, error) {
	switch p.Kind {
	case model.Long:
		return int64(int32(int64(p.Bits) / g.Size)), nil
	case model.Double:
		return int64(saturatedInt32(p.Float())) / g.Size, nil
	}
	return -1, nil
}

// saturatedInt32 is Java's conversion of a double to an int.
func saturatedInt32(v float64) int32 {
	switch {
	case math.IsNaN(v):
		return 0
	case v >= math.MaxInt32:
		return math.MaxInt32
	case v <= math.MinInt32:
		return math.MinInt32
	}
	return int32(v)
}
