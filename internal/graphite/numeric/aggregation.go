package numeric

import (
	"maps"
	"math"
	"slices"
)

// An Aggregation reduces many values to one. It ignores nulls, unless its comment says
// otherwise. Without values the result is null, except that the count is 0.
type Aggregation func([]float64) float64

var aggregations = map[string]Aggregation{
	"average": Average, "avg": Average, "avg_zero": AverageZero, "median": Median,
	"sum": Sum, "total": Sum, "min": Min, "max": Max, "diff": Diff, "stddev": Stddev,
	"count": Count, "range": Range, "rangeOf": Range, "multiply": Product, "last": Last, "current": Last,
}

// Named returns the aggregation with a name.
func Named(name string) (Aggregation, bool) {
	a, ok := aggregations[name]
	return a, ok
}

// Names returns the names of all aggregations, sorted.
func Names() []string { return slices.Sorted(maps.Keys(aggregations)) }

// Present counts the values that are not null.
func Present(values []float64) int {
	n := 0
	for _, v := range values {
		if !IsNull(v) {
			n++
		}
	}
	return n
}

// Count is Present as an aggregation.
func Count(values []float64) float64 { return float64(Present(values)) }

// total returns the sum of the values that are not null, and their number.
func total(values []float64) (sum float64, n int) {
	for _, v := range values {
		if !IsNull(v) {
			sum += v
			n++
		}
	}
	return sum, n
}

// Sum adds the values up.
func Sum(values []float64) float64 {
	sum, n := total(values)
	if n == 0 {
		return Null
	}
	return sum
}

// Average divides the sum of the values by their number.
func Average(values []float64) float64 {
	sum, n := total(values)
	if n == 0 {
		return Null
	}
	return sum / float64(n)
}

// AverageZero is Average with nulls as zeros.
func AverageZero(values []float64) float64 {
	if len(values) == 0 {
		return Null
	}
	sum, _ := total(values)
	return sum / float64(len(values))
}

// Min returns the least value.
func Min(values []float64) float64 {
	least := Null
	for _, v := range values {
		if v < least || IsNull(least) {
			least = v
		}
	}
	return least
}

// Max returns the greatest value.
func Max(values []float64) float64 {
	most := Null
	for _, v := range values {
		if v > most || IsNull(most) {
			most = v
		}
	}
	return most
}

// Range returns the difference of the greatest and the least value.
func Range(values []float64) float64 { return Max(values) - Min(values) }

// First returns the first value.
func First(values []float64) float64 {
	for _, v := range values {
		if !IsNull(v) {
			return v
		}
	}
	return Null
}

// Last returns the last value.
func Last(values []float64) float64 {
	for i := len(values) - 1; i >= 0; i-- {
		if !IsNull(values[i]) {
			return values[i]
		}
	}
	return Null
}

// Diff subtracts all further values from the first.
func Diff(values []float64) float64 {
	out, seen := Null, false
	for _, v := range values {
		switch {
		case IsNull(v):
		case !seen:
			out, seen = v, true
		default:
			out -= v
		}
	}
	return out
}

// Product multiplies the values. It is null if one of them is.
func Product(values []float64) float64 {
	if len(values) == 0 {
		return Null
	}
	out := values[0]
	for _, v := range values[1:] {
		out *= v
	}
	return out
}

// Variance returns the mean of the squared distances from the average.
func Variance(values []float64) float64 {
	mean, sum, n := Average(values), 0.0, 0
	for _, v := range values {
		if !IsNull(v) {
			sum += float64((v - mean) * (v - mean)) // as in squareOne
			n++
		}
	}
	return Quotient(sum, float64(n))
}

// Stddev returns the standard deviation of the values.
func Stddev(values []float64) float64 { return math.Sqrt(Variance(values)) }

// Median returns the value in the middle, or the mean of the two in the middle.
func Median(values []float64) float64 {
	s := present(values)
	if len(s) == 0 {
		return Null
	}
	mid := len(s) / 2
	value := nth(s, mid)
	if len(s)%2 == 0 {
		return (slices.Max(s[:mid]) + value) / 2
	}
	return value
}

// Percentile returns the n-th percentile: the value with the rank
// n/100*(count+1). Without interpolation the rank is rounded up. ok is false if no
// value has this rank.
func Percentile(values []float64, n float64, interpolate bool) (value float64, ok bool) {
	s := present(values)
	if len(s) == 0 {
		return Null, true
	}
	exact := n / 100 * float64(len(s)+1)
	if math.Abs(exact) > 1e15 || IsNull(exact) {
		return Null, false
	}
	rank := int(exact)
	fraction := exact - float64(rank)
	if !interpolate {
		rank += int(math.Ceil(fraction))
	}
	place := rank - 1
	switch {
	case rank == 0:
		place = 0
	case rank-1 == len(s):
		place = len(s) - 1
	case rank < 0:
		place += len(s) // as an index from the end
	}
	if place < 0 || place >= len(s) {
		return Null, false
	}
	value = nth(s, place)
	if interpolate && rank != len(s) {
		if rank < 0 || rank >= len(s) {
			return Null, false
		}
		value += fraction * (nth(s, rank) - value)
	}
	return value, true
}

// Enough reports whether the fraction of values that are not null is at least
// xFilesFactor. It is false if there are none.
func Enough(nonNull int, all, xFilesFactor float64) bool {
	return nonNull > 0 && all != 0 && float64(nonNull)/all >= xFilesFactor
}
