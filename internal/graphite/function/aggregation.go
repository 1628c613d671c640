package function

import (
	"math"
	"slices"
)

// An aggregation makes one value of many. Nulls do not count, unless it says
// so; of no value at all it makes null, but count makes 0.
type aggregation func([]float64) float64

var aggregations = map[string]aggregation{
	"average": averageOf, "avg": averageOf, "avg_zero": averageZeroOf, "median": medianOf,
	"sum": sumOf, "total": sumOf, "min": minOf, "max": maxOf, "diff": diffOf, "stddev": stddevOf,
	"count": countOf, "range": rangeOf, "rangeOf": rangeOf, "multiply": productOf, "last": lastOf, "current": lastOf,
}

// aggregationNames are the names that clients offer.
var aggregationNames = func() []any {
	var names []string
	for name := range aggregations {
		names = append(names, name)
	}
	slices.Sort(names)
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = name
	}
	return out
}()

// aggregationOf returns the aggregation of a name.
func aggregationOf(name string) (aggregation, error) {
	a, ok := aggregations[name]
	if !ok {
		return nil, badParam("unsupported aggregation function: %.64s", name)
	}
	return a, nil
}

func countValues(values []float64) int {
	n := 0
	for _, v := range values {
		if !isNull(v) {
			n++
		}
	}
	return n
}

func countOf(values []float64) float64 { return float64(countValues(values)) }

// total returns the sum of the values that are not null, and their number.
func total(values []float64) (sum float64, n int) {
	for _, v := range values {
		if !isNull(v) {
			sum += v
			n++
		}
	}
	return sum, n
}

func sumOf(values []float64) float64 {
	sum, n := total(values)
	if n == 0 {
		return null
	}
	return sum
}

func averageOf(values []float64) float64 {
	sum, n := total(values)
	if n == 0 {
		return null
	}
	return sum / float64(n)
}

// averageZeroOf takes nulls for zeros.
func averageZeroOf(values []float64) float64 {
	if len(values) == 0 {
		return null
	}
	sum, _ := total(values)
	return sum / float64(len(values))
}

func minOf(values []float64) float64 {
	least := null
	for _, v := range values {
		if v < least || isNull(least) {
			least = v
		}
	}
	return least
}

func maxOf(values []float64) float64 {
	most := null
	for _, v := range values {
		if v > most || isNull(most) {
			most = v
		}
	}
	return most
}

func rangeOf(values []float64) float64 { return maxOf(values) - minOf(values) }

func firstOf(values []float64) float64 {
	for _, v := range values {
		if !isNull(v) {
			return v
		}
	}
	return null
}

func lastOf(values []float64) float64 {
	for i := len(values) - 1; i >= 0; i-- {
		if !isNull(values[i]) {
			return values[i]
		}
	}
	return null
}

func diffOf(values []float64) float64 {
	out, seen := null, false
	for _, v := range values {
		switch {
		case isNull(v):
		case !seen:
			out, seen = v, true
		default:
			out -= v
		}
	}
	return out
}

// productOf is null if one of the values is.
func productOf(values []float64) float64 {
	if len(values) == 0 {
		return null
	}
	out := values[0]
	for _, v := range values[1:] {
		out *= v
	}
	return out
}

func stddevOf(values []float64) float64 {
	mean := averageOf(values)
	if isNull(mean) {
		return null
	}
	sum, n := 0.0, 0
	for _, v := range values {
		if !isNull(v) {
			sum += (v - mean) * (v - mean)
			n++
		}
	}
	return math.Sqrt(sum / float64(n))
}

// sorted returns the values that are not null, in ascending order.
func sorted(values []float64) []float64 {
	out := make([]float64, 0, len(values))
	for _, v := range values {
		if !isNull(v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

func medianOf(values []float64) float64 {
	s := sorted(values)
	if len(s) == 0 {
		return null
	}
	mid := len(s) / 2
	if len(s)%2 == 0 {
		return (s[mid-1] + s[mid]) / 2
	}
	return s[mid]
}

// percentileOf returns the value below which n percent of the values are, by
// the rank n/100*(count+1). Without interpolation the rank is rounded up. ok
// is false if there is no such rank.
func percentileOf(values []float64, n float64, interpolate bool) (value float64, ok bool) {
	s := sorted(values)
	if len(s) == 0 {
		return null, true
	}
	exact := n / 100 * float64(len(s)+1)
	if math.Abs(exact) > 1e15 || isNull(exact) {
		return null, false
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
		return null, false
	}
	value = s[place]
	if interpolate && rank != len(s) {
		if rank < 0 || rank >= len(s) {
			return null, false
		}
		value += fraction * (s[rank] - value)
	}
	return value, true
}

// enough reports whether so many of all values are not null that a result may
// be made of them.
func enough(nonNull int, all, xFilesFactor float64) bool {
	return nonNull > 0 && all != 0 && float64(nonNull)/all >= xFilesFactor
}
