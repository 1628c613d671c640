package query

import (
	"math"

	"varve/internal/model"
)

// A Sum adds doubles without intermediate overflow: it is infinite only if the total
// is. So whether a sum is finite does not depend on the order of the values.
//
//	1e308 + 1e308 - 1e308 = 1e308
//
// The zero value is 0.
type Sum struct {
	near float64
	far  float64 // in units of farUnit: what near had no room for
}

// farUnit is a power of two, which divides doubles of that size without rounding,
// and more than the number of samples that there can be.
const farUnit = 1 << 64

// Add adds a double.
func (s *Sum) Add(v float64) {
	if near := s.near + v; !math.IsInf(near, 0) {
		s.near = near
		return
	}
	s.far += s.near/farUnit + v/farUnit
	s.near = 0
}

// AddRun adds values of a kind, one after the other.
func (s *Sum) AddRun(kind model.Kind, values []uint64) {
	if part := model.Sum(kind, values); finite(part) {
		s.Add(part)
		return
	}
	for _, v := range values {
		s.Add(model.Float(kind, v))
	}
}

// AddSum adds another sum.
func (s *Sum) AddSum(o *Sum) {
	s.far += o.far
	s.Add(o.near)
}

// Total is the sum as a double.
func (s *Sum) Total() float64 { return s.Mean(1) }

// Mean is the sum divided by n. It is finite if the values are.
func (s *Sum) Mean(n int64) float64 {
	if s.far == 0 {
		return s.near / float64(n)
	}
	return (s.far + s.near/farUnit) / float64(n) * farUnit
}

func finite(v float64) bool { return v-v == 0 }
