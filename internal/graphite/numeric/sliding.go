package numeric

import (
	"math"
	"math/bits"
	"slices"
)

// A slider maintains the aggregate of a window, so that the time to move the window by one value does
// not depend on its length. Values that enter or leave are not null.
type slider interface {
	// enter adds values[i] to the window, i ascending.
	enter(i int)
	// leave removes values[i], in the order of enter.
	leave(i int)
	// aggregate returns the aggregate of the window, which has n values, at least one.
	aggregate(n int) float64
}

// WindowBytes returns the memory that [Windows] needs for a number of values, in bytes.
func WindowBytes(name string, values, points int) int64 {
	points = min(max(points, 0), values)
	if name == "median" && points >= slidingFrom {
		return 24 * int64(values)
	}
	if _, partBytes := blockAggregation(name, points); partBytes > 0 {
		return partBytes * int64(min(points, values-points))
	}
	if laneAggregation(name) != nil {
		return 8 * int64(values)
	}
	return 8 * int64(points)
}

const (
	// slidingFrom is the smallest window for which a slider is faster.
	slidingFrom = 64

	// sequentialMax is the longest window whose values are added up one by one, as in Graphite, if
	// the result depends on the order. Sums of longer windows are exact except for the last rounding.
	// Graphite's differ from them in their last digits: the sum of n values may be wrong by n halves
	// of the last digit there.
	sequentialMax = 4096
)

// sliderOf returns the slider of an aggregation for windows of a number of points, nil if none gives the
// same results. check is as in [Windows].
func sliderOf(name string, values []float64, points int, check func() error) (slider, error) {
	if points < slidingFrom || points >= len(values) {
		return nil, nil
	}
	switch name {
	case "sum", "total":
		if s := newSumSlider(values, points); s != nil {
			return s, nil
		}
	case "average", "avg", "avg_zero": // equal here, because nulls are removed before
		if s := newSumSlider(values, points); s != nil {
			return meanSlider{s}, nil
		}
	case "diff":
		if exactSums(values, points) {
			return &diffSlider{sumSlider: sumSlider{values: values}}, nil
		}
	case "min":
		return &extremeSlider{values: values, sign: 1}, nil
	case "max":
		return &extremeSlider{values: values, sign: -1}, nil
	case "range", "rangeOf":
		return rangeSlider{&extremeSlider{values: values, sign: 1}, &extremeSlider{values: values, sign: -1}}, nil
	case "median":
		return newMedianSlider(values, check)
	case "count":
		return countSlider{}, nil
	case "last", "current":
		return &lastSlider{values: values}, nil
	}
	return nil, nil
}

// A sumSlider has a sum that is never rounded.
type sumSlider struct {
	values   []float64
	sum      float64
	infinite [2]int // above and below
}

// newSumSlider returns nil if a sum may depend on the order in which the values of a window are added.
func newSumSlider(values []float64, points int) *sumSlider {
	if _, exact := greatestSum(values, points); !exact {
		return nil
	}
	return &sumSlider{values: values}
}

// greatestSum bounds the sums of a window of finite values. exact says that none of them is rounded or infinite.
func greatestSum(values []float64, points int) (sum float64, exact bool) {
	most, unit := 0.0, math.Inf(1)
	for _, v := range values {
		if IsNull(v) || math.IsInf(v, 0) || v == 0 {
			continue
		}
		most, unit = max(most, math.Abs(v)), min(unit, lowestBit(v))
	}
	sum = most * float64(points)
	return sum, sum/unit <= 1<<53 && sum <= math.MaxFloat64/4
}

// exactSums reports whether sums and differences of the values of a window are the same in any order.
// With infinities they are not, and with negative zeros the sign of a zero may differ.
func exactSums(values []float64, points int) bool {
	_, exact := greatestSum(values, points)
	return exact && !slices.ContainsFunc(values, func(v float64) bool { return math.IsInf(v, 0) || v == 0 && math.Signbit(v) })
}

// lowestBit returns the value of the lowest bit that is set in a finite number.
func lowestBit(v float64) float64 {
	fraction, exponent := math.Frexp(v)
	n := uint64(math.Abs(fraction) * (1 << 53))
	return math.Ldexp(1, exponent-53+bits.TrailingZeros64(n))
}

func (s *sumSlider) enter(i int) { s.add(s.values[i], 1) }
func (s *sumSlider) leave(i int) { s.add(s.values[i], -1) }

func (s *sumSlider) add(v float64, sign int) {
	switch {
	case math.IsInf(v, 1):
		s.infinite[0] += sign
		return
	case math.IsInf(v, -1):
		s.infinite[1] += sign
		return
	}
	s.sum += v * float64(sign)
}

func (s *sumSlider) aggregate(int) float64 {
	switch {
	case s.infinite[0] > 0 && s.infinite[1] > 0:
		return Null
	case s.infinite[0] > 0:
		return math.Inf(1)
	case s.infinite[1] > 0:
		return math.Inf(-1)
	}
	return s.sum + 0 // no -0
}

// A diffSlider subtracts the sum of the other values of the window from its first value.
type diffSlider struct {
	sumSlider
	first, left int // indexes: of the first value of the window, or earlier; of the last one that has left
}

func (s *diffSlider) leave(i int) {
	s.left = i
	s.sumSlider.leave(i)
}

func (s *diffSlider) aggregate(n int) float64 {
	for s.first <= s.left || IsNull(s.values[s.first]) {
		s.first++
	}
	return 2*s.values[s.first] - s.sumSlider.aggregate(n)
}

type meanSlider struct{ *sumSlider }

func (s meanSlider) aggregate(n int) float64 { return s.sumSlider.aggregate(n) / float64(n) }

// An extremeSlider keeps the least value of the window, or the greatest if sign is -1.
type extremeSlider struct {
	values []float64
	sign   float64
	places []int32 // a monotonic queue: the indexes of values that are less than, or equal to, all later ones
}

func (s *extremeSlider) enter(i int) {
	for n := len(s.places); n > 0 && s.sign*s.values[s.places[n-1]] > s.sign*s.values[i]; n-- {
		s.places = s.places[:n-1]
	}
	s.places = append(s.places, int32(i))
}

func (s *extremeSlider) leave(i int) {
	if len(s.places) > 0 && int(s.places[0]) == i {
		s.places = s.places[1:]
	}
}

func (s *extremeSlider) aggregate(int) float64 { return s.values[s.places[0]] }

type rangeSlider struct{ least, most *extremeSlider }

func (s rangeSlider) enter(i int) {
	s.least.enter(i)
	s.most.enter(i)
}

func (s rangeSlider) leave(i int) {
	s.least.leave(i)
	s.most.leave(i)
}

func (s rangeSlider) aggregate(n int) float64 { return s.most.aggregate(n) - s.least.aggregate(n) }

type countSlider struct{}

func (countSlider) enter(int)               {}
func (countSlider) leave(int)               {}
func (countSlider) aggregate(n int) float64 { return float64(n) }

type lastSlider struct {
	values []float64
	last   int
}

func (s *lastSlider) enter(i int)           { s.last = i }
func (s *lastSlider) leave(int)             {}
func (s *lastSlider) aggregate(int) float64 { return s.values[s.last] }

// A medianSlider counts the values of the window by their rank among all values, in a Fenwick tree. It
// finds the n-th value in logarithmic time.
type medianSlider struct {
	sorted []float64 // all distinct values
	ranks  []int32   // of each value
	counts []int32   // counts[i] is the number of values with ranks from i-i&-i up to, but not including, i
	top    int       // the greatest power of two that is an index of counts
}

func newMedianSlider(values []float64, check func() error) (slider, error) {
	sorted, err := sortChecked(present(values), check)
	if err != nil {
		return nil, err
	}
	s := &medianSlider{sorted: slices.Compact(sorted), ranks: make([]int32, len(values))}
	s.counts = make([]int32, len(s.sorted)+1)
	s.top = 1 << max(bits.Len(uint(len(s.sorted)))-1, 0)
	for i, v := range values {
		if !IsNull(v) {
			rank, _ := slices.BinarySearch(s.sorted, v)
			s.ranks[i] = int32(rank)
		}
		if i%slidingLook == slidingLook-1 {
			if err := check(); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *medianSlider) enter(i int) { s.add(i, 1) }
func (s *medianSlider) leave(i int) { s.add(i, -1) }

func (s *medianSlider) add(i int, n int32) {
	for at := int(s.ranks[i]) + 1; at < len(s.counts); at += at & -at {
		s.counts[at] += n
	}
}

// at returns the n-th smallest value of the window, counted from 0.
func (s *medianSlider) at(n int) float64 {
	place, before := 0, int32(n)
	for step := s.top; step > 0; step >>= 1 {
		if next := place + step; next < len(s.counts) && s.counts[next] <= before {
			place, before = next, before-s.counts[next]
		}
	}
	return s.sorted[place]
}

func (s *medianSlider) aggregate(n int) float64 {
	if n%2 == 0 {
		return (s.at(n/2-1) + s.at(n/2)) / 2
	}
	return s.at(n / 2)
}
